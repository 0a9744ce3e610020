"""Which pairs a search for bilingual models is made on, what it found, and which pair takes whose winner."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.corpus.languages import LangPair
from pipeline.stage import MANIFEST, Artifact

Rows = Mapping[LangPair, int]  # training rows of each pair

COLUMNS = ("pair", "train_pairs", "candidate", "parameters", "best_step", "validation_loss", "chosen", "seconds")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate, trained on one pair."""

    pair: LangPair
    candidate: str
    model: Artifact

    @property
    def loss(self) -> float:
        """The lowest of its validations."""
        return float(ledger(self.model)["validation_loss"])


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found. trials: pairs by falling resource, candidates in their order. searched: for every pair of
    the run the searched pair whose winner it takes, itself where it was searched."""

    trials: Sequence[Trial]
    searched: Mapping[LangPair, LangPair]

    def winner(self, pair: LangPair) -> str:
        """The candidate that a pair takes: the lowest loss, and of equal ones the first."""
        return min((t for t in self.trials if t.pair == self.searched[pair]), key=lambda trial: trial.loss).candidate

    def to_json(self) -> dict[str, Any]:
        """For run.json: the candidate of each pair, and the pair that it was carried over from, if any."""
        return {
            pair.name: {
                "candidate": self.winner(pair),
                "carried_over_from": None if source == pair else source.name,
            }
            for pair, source in self.searched.items()
        }

    def save(self, path: Path, rows: Rows) -> None:
        """Write search.csv: a line for each trial."""
        from eval.records.scores import write_csv

        write_csv(path, COLUMNS, [self._cells(trial, rows[trial.pair]) for trial in self.trials])

    def _cells(self, trial: Trial, rows: int) -> list[str]:
        of = ledger(trial.model)
        chosen = int(self.winner(trial.pair) == trial.candidate)
        numbers = (of["parameters"], of["best_step"], f"{trial.loss:.4f}", chosen, f"{seconds(trial.model):.1f}")
        return [trial.pair.name, str(rows), trial.candidate, *map(str, numbers)]


def by_resource(rows: Rows) -> list[LangPair]:
    """The pairs by falling number of training rows, then by name."""
    return sorted(rows, key=lambda pair: (-rows[pair], pair.name))


def spanning_pairs(rows: Rows, number: int) -> list[LangPair]:
    """So many pairs, by falling resource: the richest, the poorest, and those nearest to even steps of log(rows)
    between them; all where there are no more. Ties go by name."""
    pairs = by_resource(rows)
    if len(pairs) <= number:
        return pairs
    high, low = _log(rows[pairs[0]]), _log(rows[pairs[-1]])
    chosen = {pairs[0], pairs[-1]}
    for step in range(1, number - 1):
        target = high + (low - high) * step / (number - 1)
        left = [pair for pair in pairs if pair not in chosen]
        chosen.add(min(left, key=lambda pair: (abs(_log(rows[pair]) - target), pair.name)))
    return [pair for pair in pairs if pair in chosen]


def nearest(rows: Rows, pair: LangPair, searched: Sequence[LangPair]) -> LangPair:
    """Of the searched pairs the one nearest in log(rows), itself where it is one of them. Ties go by name."""
    if pair in searched:
        return pair
    return min(searched, key=lambda other: (abs(_log(rows[other]) - _log(rows[pair])), other.name))


def ledger(model: Artifact) -> dict[str, Any]:
    """What a training cost and reached."""
    found: dict[str, Any] = json.loads((model.path / "log" / "ledger.json").read_text(encoding="utf-8"))
    return found


def seconds(artifact: Artifact) -> float:
    """What making it took."""
    return float(json.loads((artifact.path / MANIFEST).read_text(encoding="utf-8"))["seconds"])


def _log(rows: int) -> float:
    return math.log(max(rows, 1))
