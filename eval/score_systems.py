"""Scores of several systems on one test set, by sacreBLEU (and COMET): of the corpus, with tests, or by sentence."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sacrebleu.significance import PairedTest, Result

from eval.comet import NAME, Comet
from eval.metrics import Scorer
from eval.score_files import ScoreFiles

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}
_SEED = "SACREBLEU_SEED"  # sacreBLEU reads it itself


@dataclass(frozen=True, kw_only=True)
class CorpusScore:
    """mean and ci: of the bootstrap, ci half of its 95 % interval. delta and p_value: against the baseline. None where
    it was not asked for."""

    score: float
    mean: float | None = None
    ci: float | None = None
    delta: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Of every system of files, the baseline first. signatures: by metric. corpus and sentences: by (system, metric);
    sentences are empty unless asked for, and then corpus is. test: one of TESTS or empty."""

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
    """Raise ValueError where the environment asks sacreBLEU for a seed that nobody can repeat."""
    seed = os.environ.get(_SEED, "0")
    if not seed.isdigit():
        raise ValueError(f"{_SEED}={seed!r} gives another result every time; set a whole number, or unset it")


def score_sentences(files: ScoreFiles, scorers: Mapping[str, Scorer], comet: Comet | None) -> Scores:
    """Every line of every system by itself, as `sacrebleu --sentence-level`; scorers were made with by_sentence."""
    found: dict[tuple[str, str], Sequence[float]] = {}
    references = list(zip(*files.references, strict=True))
    for metric, scorer in scorers.items():
        for system, lines in files.hypotheses.items():
            found[system, metric] = [
                float(scorer.sentence_score(line, list(of_line)).score)
                for line, of_line in zip(lines, references, strict=True)
            ]
    signatures = {metric: str(scorer.get_signature()) for metric, scorer in scorers.items()}
    if comet is not None:
        found |= {(system, NAME): _comet_scores(files, system, comet) for system in files.hypotheses}
        signatures[NAME] = comet.signature
    return Scores(files=files, signatures=signatures, sentences=found)


def score_corpora(
    files: ScoreFiles,
    scorers: Mapping[str, Scorer],
    comet: Comet | None,
    *,
    test: str = "",
    confidence: bool = False,
    resamples: int = 0,
) -> Scores:
    """Corpus scores; with `test` of every system against the first, by sacreBLEU's PairedTest.

    resamples: of the bootstrap, or trials of the randomisation; 0 is sacreBLEU's 1,000 or 10,000. Scorers hold the
    references. COMET's score is the mean of its sentence scores.
    """
    found: dict[tuple[str, str], CorpusScore] = {}
    signatures: dict[str, str] = {}
    for metric, scorer in scorers.items():
        if test:
            results, signatures[metric] = _paired(files, scorer, test, resamples)
        else:
            bootstrap = (resamples or 1000) if confidence else 1
            results = [_single(scorer, lines, bootstrap) for lines in files.hypotheses.values()]
            signatures[metric] = str(scorer.get_signature())
        found |= {(system, metric): result for system, result in zip(files.hypotheses, results, strict=True)}
    if comet is not None:
        for system in files.hypotheses:
            values = _comet_scores(files, system, comet)
            found[system, NAME] = CorpusScore(score=sum(values) / len(values))
        signatures[NAME] = comet.signature
    return Scores(files=files, signatures=signatures, test=test, corpus=found)


def _single(scorer: Scorer, lines: Sequence[str], bootstrap: int) -> CorpusScore:
    result = scorer.corpus_score(lines, None, n_bootstrap=bootstrap)
    if bootstrap == 1:
        return CorpusScore(score=float(result.score))
    return CorpusScore(score=float(result.score), mean=float(result._mean), ci=float(result._ci))


def _paired(files: ScoreFiles, scorer: Scorer, test: str, resamples: int) -> tuple[list[CorpusScore], str]:
    """One metric at a time: BLEU and spBLEU have the same name in sacreBLEU. The draws depend on the seed alone."""
    paired = PairedTest(list(files.hypotheses.items()), {"metric": scorer}, None, test, resamples)
    signatures, columns = paired()
    ((name, signature),) = signatures.items()
    results = [result for result in columns[name] if isinstance(result, Result)]  # without the column of names
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
    assert files.sources is not None  # the command checks it before anything is loaded
    return comet.scores(files.sources, files.hypotheses[system], files.references[0])
