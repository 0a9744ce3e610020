import pytest

from eval.metrics import score_corpus, tokenizer_for


@pytest.mark.parametrize(
    ("tgt", "tokenizer"),
    [("zh", "zh"), ("zh-Hant", "zh"), ("ja", "ja-mecab"), ("ko-KR", "ko-mecab"), ("en", "13a"), ("jam", "13a")],
)
def test_tokenizer_follows_the_primary_subtag(tgt: str, tokenizer: str) -> None:
    assert tokenizer_for(tgt) == tokenizer


def test_signature_names_tokenizer_and_version() -> None:
    score = score_corpus(["猫が好き"], ["猫が好きです"], "ja", "bleu")
    assert "tok:ja-mecab" in score.signature
    assert "version:2." in score.signature
    assert score.n == 1


def test_perfect_korean_is_100() -> None:
    line = "선택한 셀의 색을 고르는 대화 상자를 엽니다."
    assert score_corpus([line], [line], "ko", "bleu").score == pytest.approx(100)


@pytest.mark.parametrize(
    ("hypotheses", "references", "tgt", "metric", "message"),
    [
        (["a"], ["a", "b"], "en", "bleu", "hypotheses=1 lines but references=2 lines"),
        ([], [], "en", "chrf++", "hypotheses=0 lines"),
        (["a"], ["a"], "en", "ter", "metric='ter' is unknown; choose from bleu, chrf"),
        (["a"], ["a"], "", "bleu", "tgt=''"),
    ],
)
def test_bad_input_is_named(hypotheses: list[str], references: list[str], tgt: str, metric: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        score_corpus(hypotheses, references, tgt, metric)
