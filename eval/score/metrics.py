"""sacreBLEU's metrics with the settings that a target language needs: BLEU, spBLEU, chrF, chrF++ and TER."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sacrebleu.utils
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric as SacreBleuMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from eval.records.scores import METRICS, SACREBLEU_METRICS

Scorer = SacreBleuMetric

# The members of the macrolanguage zho (ISO 639-3). A test checks that they include all that langcodes knows.
_CHINESE = "zh zho chi cmn cdo cjy cnp cpx csp czh czo gan hak hnm hsn luh lzh mnp nan sjc wuu yue"
_TOKENIZERS = dict.fromkeys(_CHINESE.split(), "zh")
_TOKENIZERS |= {"ja": "ja-mecab", "jpn": "ja-mecab", "ko": "ko-mecab", "kor": "ko-mecab"}
_SCRIPTS = {  # the scripts that each tokenizer is made for
    "zh": frozenset({"hans", "hant", "hani", "hanb"}),
    "ja-mecab": frozenset({"jpan", "hrkt", "hira", "kana", "hani"}),
    "ko-mecab": frozenset({"kore", "hang", "hani"}),
}
# Languages without spaces between words for which sacreBLEU has no tokenizer.
_UNSPACED = frozenset({"th", "tha", "lo", "lao", "km", "khm", "my", "mya", "shn", "bo", "bod", "dz", "dzo"})


def tokenizer_for(tgt: str) -> str:
    """Return the name of sacreBLEU's BLEU tokenizer for a target code (`zh-Hans`, `jpn_Jpan`).

    It is 13a for a language without a tokenizer of its own, and for a script that the tokenizer is not made for
    (`nan-Latn`).
    """
    if not tgt:
        raise ValueError("tgt='' names no target language; give a BCP-47 code such as 'en' or 'zh-Hans'")
    primary, *subtags = _subtags(tgt)
    tokenizer = _TOKENIZERS.get(primary, "13a")
    script = next((subtag for subtag in subtags if len(subtag) == 4 and subtag.isalpha()), None)
    return "13a" if script and script not in _SCRIPTS.get(tokenizer, ()) else tokenizer


def caution(metric: str, tgt: str) -> str:
    """Return a warning if a metric says little for a target language, else an empty text."""
    if not METRICS[metric].by_word or _subtags(tgt)[0] not in _UNSPACED:
        return ""
    return (
        f"{metric} of {tgt}: written without spaces, and sacreBLEU has no tokenizer for it, so that runs of text count "
        "as words; compare chrf or spbleu"
    )


def scorer_for(
    metric: str, tgt: str, *, references: Sequence[Sequence[str]] | None = None, by_sentence: bool = False
) -> Scorer:
    """Return a new sacreBLEU metric object with the settings of sacreBLEU's command line.

    BLEU has mixed case and exponential smoothing. TER cuts Chinese and Japanese into characters.

    references: one list of lines a reference; the object keeps them for any number of systems.
    by_sentence: score single sentences with the n-gram orders that they have, as `sacrebleu -sl` does.
    Raises ValueError for an unknown metric, and for spBLEU without its model, which is never downloaded.
    """
    if metric in ("bleu", "spbleu", "spbleu101"):
        tokenizer = _sentence_piece(metric) if METRICS[metric].sentence_piece else tokenizer_for(tgt)
        return BLEU(tokenize=tokenizer, effective_order=by_sentence, references=references)
    if metric == "bleu_tok":
        return BLEU(tokenize="none", force=True, effective_order=by_sentence, references=references)
    if metric in ("chrf++", "chrf"):
        return CHRF(word_order=2 if metric == "chrf++" else 0, references=references)
    if metric == "ter":
        by_character = tokenizer_for(tgt) in ("zh", "ja-mecab")
        return TER(normalized=by_character, asian_support=by_character, references=references)
    raise ValueError(f"metric={metric!r} is unknown; choose from {', '.join(SACREBLEU_METRICS)}")


def check_parallel(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless every hypothesis has one reference and the test set has at least one line."""
    if len(hypotheses) != len(references):
        raise ValueError(
            f"hypotheses={len(hypotheses)} lines but references={len(references)} lines; "
            "both need one line a sentence, empty lines kept"
        )
    if not hypotheses:
        raise ValueError("hypotheses=0 lines: an empty test set has no score; check the translations")


def sentence_statistics(scorer: Scorer, hypotheses: Sequence[str]) -> NDArray[np.float64]:
    """Return sacreBLEU's sufficient statistics, one row a sentence. The corpus score follows from their sums.

    The extraction is the one that sacrebleu.significance uses; a test checks that it stays the same.
    """
    return np.asarray(scorer._extract_corpus_statistics(list(hypotheses), None), dtype=np.float64)


def score_from_sums(scorer: Scorer, sums: NDArray[np.float64]) -> float:
    """Return the corpus score (0 to 100) for summed sentence statistics."""
    return float(scorer._compute_score_from_stats(sums.tolist()).score)


def _subtags(tgt: str) -> list[str]:
    """Return the parts of a code in lower case, the language first."""
    return tgt.lower().replace("_", "-").split("-")


def _sentence_piece(metric: str) -> str:
    """Return the name of spBLEU's tokenizer. Raises ValueError without its model, which sacreBLEU would download."""
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

    name = METRICS[metric].sentence_piece
    url = SPM_MODELS[name]["url"]
    path = Path(sacrebleu.utils.SACREBLEU_DIR, "models", url.rsplit("/", 1)[-1])
    if not path.is_file():
        raise ValueError(
            f"metric={metric!r} needs the SentencePiece model {path}, which is not there; fetch it from {url} "
            "or set SACREBLEU to a directory that has it in models/"
        )
    return name
