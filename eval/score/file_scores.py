"""Scores of translation files of several systems, by sacreBLEU and COMET: for the whole corpus or for each sentence."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sacrebleu.significance import PairedTest, Result

from eval.score.comet import NAME, Comet
from eval.score.metrics import Scorer
from eval.score.text_files import ScoreFiles

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}
_SEED = "SACREBLEU_SEED"  # sacreBLEU reads it itself


@dataclass(frozen=True, kw_only=True)
class CorpusScore:
    """The score of one system by one metric. Values that the command did not ask for are None.

    mean: mean over the bootstrap resamples.
    ci: half the width of the 95 % interval by bootstrap.
    delta, p_value: difference from the baseline, and its test.
    """

    score: float
    mean: float | None = None
    ci: float | None = None
    delta: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of every system, the baseline first. Either corpus or sentences is empty.

    signatures: sacreBLEU's or COMET's signature by metric.
    test: a key of TESTS, or empty.
    corpus: corpus scores by (system, metric).
    sentences: the scores of every line by (system, metric).
    """

    files: ScoreFiles
    signatures: Mapping[str, str]
    test: str = ""
    corpus: Mapping[tuple[str, str], CorpusScore] = field(default_factory=dict)
    sentences: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)

    @property
    def systems(self) -> list[str]:
        return list(self.files.hypotheses)

    @property
    def metrics(self) -> list[str]:
        return list(self.signatures)

    @property
    def num_sentences(self) -> int:
        return len(self.files.references[0])


def check_seed() -> None:
    """Raise ValueError if the environment makes sacreBLEU draw a random seed, as the result could not be repeated."""
    seed = os.environ.get(_SEED, "0")
    if not seed.isdigit():
        raise ValueError(f"{_SEED}={seed!r} gives another result every time; set a whole number, or unset it")


def score_sentences(files: ScoreFiles, scorers: Mapping[str, Scorer], comet: Comet | None) -> Scores:
    """Score every line of every system by itself, as `sacrebleu --sentence-level` does.

    scorers: metric objects made with by_sentence=True.
    """
    scores: dict[tuple[str, str], Sequence[float]] = {}
    references = list(zip(*files.references, strict=True))
    for metric, scorer in scorers.items():
        for system, lines in files.hypotheses.items():
            scores[system, metric] = [
                float(scorer.sentence_score(line, list(line_references)).score)
                for line, line_references in zip(lines, references, strict=True)
            ]
    signatures = {metric: str(scorer.get_signature()) for metric, scorer in scorers.items()}
    if comet is not None:
        scores |= {(system, NAME): _comet_scores(files, system, comet) for system in files.hypotheses}
        signatures[NAME] = comet.signature
    return Scores(files=files, signatures=signatures, sentences=scores)


def score_corpora(
    files: ScoreFiles,
    scorers: Mapping[str, Scorer],
    comet: Comet | None,
    *,
    test: str = "",
    confidence: bool = False,
    resamples: int = 0,
) -> Scores:
    """Return the corpus scores of every system. COMET's is the mean of its sentence scores.

    scorers: metric objects that hold the references.
    test: a key of TESTS, to compare every system with the first by sacreBLEU's PairedTest.
    resamples: bootstrap resamples, or trials of the randomisation test; 0 is sacreBLEU's 1,000 or 10,000.
    """
    scores: dict[tuple[str, str], CorpusScore] = {}
    signatures: dict[str, str] = {}
    for metric, scorer in scorers.items():
        if test:
            results, signatures[metric] = _paired(files, scorer, test, resamples)
        else:
            bootstrap = (resamples or 1000) if confidence else 1
            results = [_single(scorer, lines, bootstrap) for lines in files.hypotheses.values()]
            signatures[metric] = str(scorer.get_signature())
        scores |= {(system, metric): result for system, result in zip(files.hypotheses, results, strict=True)}
    if comet is not None:
        for system in files.hypotheses:
            values = _comet_scores(files, system, comet)
            scores[system, NAME] = CorpusScore(score=sum(values) / len(values))
        signatures[NAME] = comet.signature
    return Scores(files=files, signatures=signatures, test=test, corpus=scores)


def _single(scorer: Scorer, lines: Sequence[str], bootstrap: int) -> CorpusScore:
    result = scorer.corpus_score(lines, None, n_bootstrap=bootstrap)
    if bootstrap == 1:
        return CorpusScore(score=float(result.score))
    return CorpusScore(score=float(result.score), mean=float(result._mean), ci=float(result._ci))


def _paired(files: ScoreFiles, scorer: Scorer, test: str, resamples: int) -> tuple[list[CorpusScore], str]:
    """Return the scores and the signature of one metric, with a paired test.

    Metrics are tested one at a time, because BLEU and spBLEU have the same name in sacreBLEU. Their resamples are still
    the same, because these depend on the seed alone.
    """
    paired = PairedTest(list(files.hypotheses.items()), {"metric": scorer}, None, test, resamples)
    signatures, columns = paired()
    ((name, signature),) = signatures.items()
    results = [result for result in columns[name] if isinstance(result, Result)]  # the list begins with names
    baseline = results[0]
    scores = [
        CorpusScore(
            score=float(result.score),
            mean=None if result.mean is None else float(result.mean),
            ci=None if result.ci is None else float(result.ci),
            delta=None if result is baseline else float(result.score - baseline.score),
            p_value=None if result.p_value is None else float(result.p_value),
        )
        for result in results
    ]
    return scores, str(signature)


def _comet_scores(files: ScoreFiles, system: str, comet: Comet) -> list[float]:
    assert files.sources is not None  # the command has checked it
    return comet.scores(files.sources, files.hypotheses[system], files.references[0])
