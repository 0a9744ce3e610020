from pathlib import Path

import pytest
from langcodes.data_dicts import MACROLANGUAGES

from eval.records.scores import METRICS, SACREBLEU_METRICS
from eval.score.metrics import Scorer, caution, scorer_for, tokenizer_for
from eval.score.significance import resample


@pytest.mark.parametrize(
    ("tgt", "tokenizer"),
    [
        ("zh", "zh"),
        ("zh-Hant", "zh"),
        ("zho_Hans", "zh"),
        ("yue", "zh"),
        ("gan", "zh"),
        ("hak", "zh"),
        ("nan", "zh"),
        ("nan-Hant", "zh"),
        ("nan_Hans", "zh"),
        ("nan-Hant-TW", "zh"),
        ("hak-TW", "zh"),
        ("zh-CN", "zh"),
        ("zh-Hani", "zh"),
        ("nan-Latn", "13a"),
        ("nan_Latn_TW", "13a"),
        ("hak-Latn", "13a"),
        ("zh-Latn-pinyin", "13a"),
        ("ja-Latn", "13a"),
        ("ja-Hira", "ja-mecab"),
        ("kor_Hang", "ko-mecab"),
        ("dng", "13a"),  # Dungan, of no macrolanguage, is written in Cyrillic
        ("za", "13a"),
        ("sr-Latn", "13a"),
        ("ja", "ja-mecab"),
        ("jpn_Jpan", "ja-mecab"),
        ("ko-KR", "ko-mecab"),
        ("en", "13a"),
        ("jam", "13a"),
        ("th", "13a"),
    ],
)
def test_tokenizer_follows_language_and_script(tgt: str, tokenizer: str) -> None:
    assert tokenizer_for(tgt) == tokenizer


def test_every_chinese_language_that_langcodes_knows_is_cut_into_characters() -> None:
    members = [code for code, whole in MACROLANGUAGES.items() if whole == "zh"]
    assert {"gan", "hak", "nan"} < set(members)
    assert {tokenizer_for(code) for code in members} == {"zh"}
    assert {tokenizer_for(f"{code}-Latn") for code in members} == {"13a"}


def test_tokenized_text_is_scored_as_it_is() -> None:
    """A full stop inside a token is a token of its own to 13a, which multi-bleu.perl does not do."""
    hypothesis, reference = ["he is at 8 a.m. outside"], ["he is at 9 a.m. outside"]
    tokens = scorer_for("bleu_tok", "en").corpus_score(hypothesis, [reference])
    assert (tokens.counts, tokens.totals, tokens.ref_len) == ([5, 3, 1, 0], [6, 5, 4, 3], 6)
    assert scorer_for("bleu", "en").corpus_score(hypothesis, [reference]).totals[0] == 9
    assert resample([hypothesis], reference, "en", "bleu_tok", n_resamples=1)[0].signature.count("tok:none") == 1


def test_ter_goes_by_character_only_in_their_script() -> None:
    assert resample([["你食飽未"]], ["你食飽無"], "nan-Hant", "ter", n_resamples=1)[0].score == pytest.approx(25)
    line, other = "Lí chia̍h pá--bōe", "Lí chia̍h pá--bô"
    assert resample([[line]], [other], "nan-Latn", "ter", n_resamples=1)[0].score == pytest.approx(100 / 3)


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
    assert not any(caution(metric, "th") for metric, record in METRICS.items() if not record.by_word)
    assert not any(caution(metric, tgt) for metric in METRICS for tgt in ("en", "ja", "zh-Hans", "ko"))


@pytest.mark.parametrize("metric", [name for name in SACREBLEU_METRICS if not METRICS[name].sentence_piece])
def test_every_record_has_a_scorer_that_rises_or_falls_as_it_says(metric: str) -> None:
    scorer = scorer_for(metric, "en")
    assert isinstance(scorer, Scorer)
    better, worse = (scorer.corpus_score([line], [["a cat sat down"]]).score for line in ("a cat sat down", "dogs ran"))
    assert (better < worse) == METRICS[metric].falling


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
