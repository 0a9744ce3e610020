from pathlib import Path

import pytest

from eval.metrics import caution, scorer_for, tokenizer_for
from eval.scores import METRICS
from eval.significance import resample


@pytest.mark.parametrize(
    ("tgt", "tokenizer"),
    [
        ("zh", "zh"),
        ("zh-Hant", "zh"),
        ("zho_Hans", "zh"),
        ("yue", "zh"),
        ("ja", "ja-mecab"),
        ("jpn_Jpan", "ja-mecab"),
        ("ko-KR", "ko-mecab"),
        ("en", "13a"),
        ("jam", "13a"),
        ("th", "13a"),
    ],
)
def test_tokenizer_follows_the_primary_subtag(tgt: str, tokenizer: str) -> None:
    assert tokenizer_for(tgt) == tokenizer


def test_signature_names_tokenizer_and_version() -> None:
    (score,) = resample([["猫が好き"]], ["猫が好きです"], "ja", "bleu", n_resamples=1)
    assert "tok:ja-mecab" in score.signature
    assert "version:2." in score.signature
    assert score.n == 1


def test_perfect_korean_is_100() -> None:
    line = "선택한 셀의 색을 고르는 대화 상자를 엽니다."
    assert resample([[line]], [line], "ko", "bleu", n_resamples=1)[0].score == pytest.approx(100)


@pytest.mark.parametrize(
    ("hypotheses", "references", "tgt", "metric", "message"),
    [
        (["a"], ["a", "b"], "en", "bleu", "hypotheses=1 lines but references=2 lines"),
        ([], [], "en", "chrf++", "hypotheses=0 lines"),
        (["a"], ["a"], "en", "wer", "metric='wer' is unknown; choose from bleu, chrf"),
        (["a"], ["a"], "", "bleu", "tgt=''"),
    ],
)
def test_bad_input_is_named(hypotheses: list[str], references: list[str], tgt: str, metric: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        resample([hypotheses], references, tgt, metric)


def test_languages_without_spaces_and_tokenizer_have_a_caution() -> None:
    assert caution("bleu", "km").startswith("bleu of km: written without spaces")
    assert caution("ter", "tha_Thai")
    assert not any(caution(metric, "th") for metric in METRICS if metric not in ("bleu", "ter"))
    assert not any(caution(metric, tgt) for metric in METRICS for tgt in ("en", "ja", "zh-Hans", "ko"))


@pytest.mark.parametrize(
    ("metric", "name"), [("spbleu", "flores200sacrebleuspm"), ("spbleu101", "_tokenizer_spm.model")]
)
def test_spbleu_without_its_model_says_where_it_goes_and_fetches_nothing(
    metric: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sacrebleu.utils.SACREBLEU_DIR", str(tmp_path))
    with pytest.raises(
        ValueError, match=f"needs the SentencePiece model {tmp_path}/models/.*{name}, which is not there"
    ):
        scorer_for(metric, "de")
    assert list(tmp_path.iterdir()) == []
