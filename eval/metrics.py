"""Corpus BLEU and chrF++ by sacreBLEU, with the tokenizer that the target language needs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

METRICS = ("bleu", "chrf++")
_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}


@dataclass(frozen=True, kw_only=True)
class Score:
    """A corpus score (0 to 100), the sacreBLEU signature that makes it comparable, and its n sentences."""

    score: float
    signature: str
    n: int


def tokenizer_for(tgt: str) -> str:
    """sacreBLEU's BLEU tokenizer for a BCP-47 target code; 13a where the language has none of its own."""
    if not tgt:
        raise ValueError("tgt='' names no target language; give a BCP-47 code such as 'en' or 'zh-Hans'")
    return _TOKENIZERS.get(tgt.lower().split("-")[0], "13a")


def scorer_for(metric: str, tgt: str) -> BLEU | CHRF:
    """A fresh sacreBLEU metric object: `bleu` (mixed case, exponential smoothing) or `chrf++` (6 + 2)."""
    if metric == "bleu":
        return BLEU(tokenize=tokenizer_for(tgt))
    if metric == "chrf++":
        return CHRF(word_order=2)
    raise ValueError(f"metric={metric!r} is unknown; choose from {', '.join(METRICS)}")


def check_parallel(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless there is one reference for every hypothesis, and at least one of them."""
    if len(hypotheses) != len(references):
        raise ValueError(
            f"hypotheses={len(hypotheses)} lines but references={len(references)} lines; "
            "both need one line a sentence, empty lines kept"
        )
    if not hypotheses:
        raise ValueError("hypotheses=0 lines: an empty test set has no score; check the translations")


def sentence_statistics(
    scorer: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str]
) -> NDArray[np.float64]:
    """sacreBLEU's sufficient statistics, one row a sentence: whole numbers whose column sums give the score.

    The extraction is the one that sacrebleu.significance itself uses; a contract test holds it.
    """
    check_parallel(hypotheses, references)
    rows = scorer._extract_corpus_statistics(list(hypotheses), [list(references)])
    return np.asarray(rows, dtype=np.float64)


def score_from_sums(scorer: BLEU | CHRF, sums: NDArray[np.float64]) -> float:
    """Corpus score (0 to 100) of summed sentence statistics."""
    counts = [int(value) for value in sums.tolist()]
    return float(scorer._compute_score_from_stats(counts).score)


def score_corpus(hypotheses: Sequence[str], references: Sequence[str], tgt: str, metric: str) -> Score:
    """Corpus score of detokenized hypotheses against one reference each.

    Raises ValueError for lengths that differ, an empty set, or an unknown metric.
    """
    check_parallel(hypotheses, references)
    scorer = scorer_for(metric, tgt)
    result = scorer.corpus_score(list(hypotheses), [list(references)])
    return Score(score=float(result.score), signature=str(scorer.get_signature()), n=len(hypotheses))
