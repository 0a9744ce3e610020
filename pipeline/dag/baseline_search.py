"""The search for bilingual models: on which pairs it is made, what it gave, and which pair takes whose winner."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import MANIFEST, Artifact

Rows = Mapping[LangPair, int]  # training rows of each pair

COLUMNS = (
    *("pair", "train_pairs", "candidate", "parameters", "best_step", "validation_loss", "nats_per_character"),
    *("chosen", "seconds"),
)
SCORE_COLUMNS = ("validation_metric", "validation_score")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate, trained on one pair.

    characters_per_token: of the target side of the development set (`pipeline.vocab.encode`).
    """

    pair: LangPair
    candidate: str
    model: Artifact
    characters_per_token: float

    @property
    def score(self) -> tuple[str, float] | None:
        """The metric of `train.validate_metric` and the best checkpoint's score by it; None if that is the loss."""
        ledger = read_ledger(self.model)
        return (ledger["validation_metric"], ledger["validation_score"]) if "validation_score" in ledger else None

    @property
    def nats_per_character(self) -> float:
        """The validation loss of the best checkpoint by characters, not by tokens, so that vocabularies compare."""
        return float(read_ledger(self.model)["validation_loss"]) / self.characters_per_token


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The trials of a search, and the winners that follow from them.

    trials: pairs by falling resource, candidates in their order.
    searched: for every pair of the run the searched pair whose winner it takes; a searched pair takes its own.
    """

    trials: Sequence[Trial]
    searched: Mapping[LangPair, LangPair]

    def winner(self, pair: LangPair) -> str:
        """Return the candidate that a pair takes: the one with the lowest loss, and of equal ones the first.

        If all have a score by the same metric, the one with the highest score, and of equal ones the lowest loss.
        """
        trials = [trial for trial in self.trials if trial.pair == self.searched[pair]]
        metrics = {trial.score[0] if trial.score else None for trial in trials}
        scored = metrics != {None} and len(metrics) == 1
        best = min(
            trials,
            key=lambda trial: (-trial.score[1] if scored and trial.score else 0.0, trial.nats_per_character),
        )
        return best.candidate

    def boundaries(self, rows: Rows) -> list[int]:
        """Return the training rows up to which pairs take another candidate than those with more rows, rising."""
        neighbours = [(high, low) for high, low in pairwise(by_resource(rows)) if rows[low] < rows[high]]
        return sorted({rows[low] for high, low in neighbours if self.winner(low) != self.winner(high)})

    def to_json(self) -> dict[str, Any]:
        """Return, for run.json, the candidate of each pair and the pair that it was carried over from, if any."""
        return {
            pair.name: {
                "candidate": self.winner(pair),
                "carried_over_from": None if source == pair else source.name,
            }
            for pair, source in self.searched.items()
        }

    def save(self, path: Path, rows: Rows) -> None:
        """Write search.csv: a line for each trial, with its score if validations translate."""
        from eval.records.scores import write_csv

        lines = [self._cells(trial, rows[trial.pair]) for trial in self.trials]
        if not any(trial.score for trial in self.trials):
            write_csv(path, COLUMNS, lines)
            return
        scores = [[*trial.score[:1], f"{trial.score[1]:.4f}"] if trial.score else ["", ""] for trial in self.trials]
        lines = [[*cells, *score] for cells, score in zip(lines, scores, strict=True)]
        write_csv(path, (*COLUMNS, *SCORE_COLUMNS), lines)

    def _cells(self, trial: Trial, rows: int) -> list[str]:
        ledger = read_ledger(trial.model)
        wins = int(self.winner(trial.pair) == trial.candidate)
        losses = (f"{ledger['validation_loss']:.4f}", f"{trial.nats_per_character:.4f}")
        numbers = (ledger["parameters"], ledger["best_step"], *losses, wins, f"{seconds(trial.model):.1f}")
        return [trial.pair.name, str(rows), trial.candidate, *map(str, numbers)]


def by_resource(rows: Rows) -> list[LangPair]:
    """Return the pairs by falling number of training rows, then by name."""
    return sorted(rows, key=lambda pair: (-rows[pair], pair.name))


def spanning_pairs(rows: Rows, number: int) -> list[LangPair]:
    """Return `number` pairs by falling resource, or all where there are no more.

    They are the richest, the poorest, and those nearest to even steps of log(rows) between them. Ties go by name.
    """
    pairs = by_resource(rows)
    if len(pairs) <= number:
        return pairs
    high, low = _log(rows[pairs[0]]), _log(rows[pairs[-1]])
    spanning = {pairs[0], pairs[-1]}
    for step in range(1, number - 1):
        target = high + (low - high) * step / (number - 1)
        candidates = [pair for pair in pairs if pair not in spanning]
        spanning.add(min(candidates, key=lambda pair: (abs(_log(rows[pair]) - target), pair.name)))
    return [pair for pair in pairs if pair in spanning]


def nearest(rows: Rows, pair: LangPair, searched: Sequence[LangPair]) -> LangPair:
    """Return the searched pair nearest in log(rows); a searched pair is nearest to itself. Ties go by name."""
    if pair in searched:
        return pair
    return min(searched, key=lambda candidate: (abs(_log(rows[candidate]) - _log(rows[pair])), candidate.name))


def read_ledger(model: Artifact) -> dict[str, Any]:
    """Return what a training cost and reached."""
    ledger: dict[str, Any] = json.loads((model.path / "log" / "ledger.json").read_text(encoding="utf-8"))
    return ledger


def seconds(artifact: Artifact) -> float:
    """Return how long making the artifact took."""
    return float(json.loads((artifact.path / MANIFEST).read_text(encoding="utf-8"))["seconds"])


def _log(rows: int) -> float:
    return math.log(max(rows, 1))
