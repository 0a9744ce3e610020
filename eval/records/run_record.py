"""The files of a run that scoring and reporting read: run.json, data.json, translations, metrics.jsonl."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.language import split_pair

Json = dict[str, Any]

TEST_SETS = "test_sets"  # directory of the further test sets that a run scores itself, by score.test_sets
EVALUATED = "tests"  # directory of those that `make evaluate` scores


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The contents of run.json, or of data.json before training.

    The files must have name, pairs and train_pairs; any other field that they lack is empty here.
    """

    name: str
    pairs: tuple[str, ...]
    train_pairs: Mapping[str, int]  # training sentence pairs
    languages: Mapping[str, tuple[str, str]]  # (source, target) codes of each pair
    recipe: str
    commit: str
    created: str
    config: Json
    environment: Json
    systems: Mapping[str, Sequence[Json]]  # cost ledgers, one a model
    translated: Mapping[str, Sequence[str]]  # pairs by system, where a system does not translate all of them
    untrained: Sequence[str]  # pairs of a further test set that the multilingual model was not trained on
    overlap: Mapping[str, Mapping[str, int]]  # by pair of such a test set: lines, and those with text of the training
    corpus: Json
    funnel: Json  # by pair and split: read, changed, removed by rule, kept
    sources: Mapping[str, Sequence[Json]]  # by pair: name, tag, licence, citation, read, kept
    examples: Mapping[str, Mapping[str, Sequence[Sequence[str]]]]  # by pair whose licence permits it, and rule: rows
    not_judged: Mapping[str, Sequence[str]]  # by pair: sentences on which rule does not apply to a side, and why
    encoded: Mapping[str, Json]  # by pair: training rows, and how many the encoder dropped for too many tokens
    baseline_search: Json  # how the bilingual recipes were chosen
    baseline_boundaries: Sequence[int]  # training pairs up to which the baselines have other settings than above
    sample_sentences: bool

    @property
    def show(self) -> bool:
        """False if the setting `report.show` hides texts of the corpora."""
        return bool(self.config.get("report", {}).get("show", True))

    @property
    def ensemble(self) -> tuple[str, ...]:
        """Names of the runs whose models translated together with the multilingual one."""
        return tuple(map(str, (self.config.get("decode") or {}).get("ensemble", ())))

    def systems_of(self, pair: str) -> tuple[str, ...]:
        """Return the systems that translated a pair."""
        return tuple(system for system in self.systems if pair in self.translated.get(system, self.pairs))

    @property
    def pairs_by_resource(self) -> tuple[str, ...]:
        """The pairs in decreasing order of training data, then by name."""
        return tuple(sorted(self.pairs, key=lambda pair: (-self.train_pairs[pair], pair)))


@dataclass(frozen=True, kw_only=True)
class Translation:
    """One test sentence.

    score: the model's length-normalised log-probability, None if it was not kept.
    at_limit: the limit of length ended the translation; None if the version that translated did not record it.
    kind, plain_line: of a challenge set, the kind of the line (`eval.records.challenge`), and the number of the
        unchanged line, from 1.
    """

    source: str
    hypothesis: str
    reference: str
    score: float | None
    at_limit: bool | None = None
    kind: str = ""
    plain_line: int | None = None


@dataclass(frozen=True, kw_only=True)
class LossPoint:
    """Cross-entropy in nats per target token, after so many steps and target tokens.

    pairs: cross-entropy by pair; only validation records have it.
    seconds: training time so far, without validation and checkpoints; None if not recorded.
    metric: name in METRICS of the metric of translations by which a validation was judged; empty for the loss.
    score: by that metric, the mean over pairs; from 0 to 100 for those of sacreBLEU.
    scores: the same by pair.
    """

    step: int
    target_tokens: int
    cross_entropy: float
    pairs: Mapping[str, float]
    seconds: float | None = None
    metric: str = ""
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)


def load_run(run_dir: Path, name: str = "run.json") -> RunRecord:
    """Read run.json or data.json.

    Raises ValueError for a missing file, a missing required key, or a pair without its train_pairs.
    """
    path = run_dir / name
    data = _parse_object(_read_text(path), str(path))
    for key in ("name", "pairs", "train_pairs"):
        if not data.get(key):
            raise ValueError(f"{path} lacks the required key {key!r}; publish the run again")
    pairs = tuple(str(pair) for pair in data["pairs"])
    missing = [pair for pair in pairs if pair not in data["train_pairs"]]
    if missing:
        raise ValueError(f"{path} train_pairs lacks {', '.join(missing)}; every pair needs a count")
    codes = data.get("languages") or {}
    languages = {
        pair: (str(codes[pair]["source"]), str(codes[pair]["target"])) if pair in codes else split_pair(pair)
        for pair in pairs
    }
    optional: Json = {key: str(data.get(key) or "") for key in ("recipe", "commit", "created")}
    objects = ("config", "environment", "systems", "corpus", "funnel", "sources", "examples", "not_judged", "encoded")
    optional |= {key: data.get(key) or {} for key in (*objects, "baseline_search", "translated", "overlap")}
    return RunRecord(
        name=str(data["name"]),
        pairs=pairs,
        train_pairs={pair: int(data["train_pairs"][pair]) for pair in pairs},
        languages=languages,
        baseline_boundaries=[int(rows) for rows in data.get("baseline_boundaries") or ()],
        untrained=tuple(map(str, data.get("untrained") or ())),
        sample_sentences=data.get("sample_sentences") is True,
        **optional,
    )


def load_translations(run_dir: Path, system: str, pair: str) -> list[Translation]:
    """Read translations/<system>/<pair>.jsonl in test-set order."""
    return read_translations(run_dir / "translations" / system / f"{pair}.jsonl")


def read_translations(path: Path) -> list[Translation]:
    """Read a pair's translations in test-set order. Raises ValueError with the line that lacks a text."""
    translations = []
    for place, line in _json_lines(path):
        for key in ("source", "hypothesis", "reference"):
            if not isinstance(line.get(key), str):
                raise ValueError(f"{place} lacks the text {key!r}; translate the pair again")
        score = line.get("score")
        translations.append(
            Translation(
                source=line["source"],
                hypothesis=line["hypothesis"],
                reference=line["reference"],
                score=None if score is None else float(score),
                at_limit=None if line.get("at_limit") is None else bool(line["at_limit"]),
                kind=str(line.get("kind", "")),
                plain_line=None if line.get("plain_line") is None else int(line["plain_line"]),
            )
        )
    return translations


def load_losses(run_dir: Path, event: str) -> list[LossPoint]:
    """Read the records of one event (`train` or `validation`) from metrics.jsonl, in order of steps.

    A resumed run logs some steps twice. The later record is kept, because it belongs to the final model.
    """
    path = run_dir / "metrics.jsonl"
    points = {}
    for place, line in _json_lines(path):
        if line.get("event") != event:
            continue
        for key in ("step", "target_tokens", "cross_entropy"):
            if not isinstance(line.get(key), int | float):
                raise ValueError(f"{place} lacks the number {key!r}, which a record {event!r} needs")
        point = LossPoint(
            step=int(line["step"]),
            target_tokens=int(line["target_tokens"]),
            cross_entropy=float(line["cross_entropy"]),
            pairs={str(pair): float(value) for pair, value in (line.get("pairs") or {}).items()},
            seconds=None if line.get("seconds") is None else float(line["seconds"]),
            metric=str(line.get("metric") or ""),
            score=None if line.get("score") is None else float(line["score"]),
            scores={str(pair): float(value) for pair, value in (line.get("scores") or {}).items()},
        )
        points[point.step] = point
    return [points[step] for step in sorted(points)]


def load_events(run_dir: Path, event: str) -> list[Json]:
    """Read the records of one event from metrics.jsonl, in order of steps. Of one step, the last record counts."""
    lines = [line for _, line in _json_lines(run_dir / "metrics.jsonl") if line.get("event") == event]
    by_step = {int(line["step"]): line for line in lines}
    return [by_step[step] for step in sorted(by_step)]


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path} does not exist; it is required, check the run directory")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}; write it again as UTF-8") from error


def _parse_object(text: str, place: str) -> Json:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place} is not JSON ({error}); write it again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{place} holds a {type(value).__name__}; expected a JSON object")
    return value


def _json_lines(path: Path) -> Iterator[tuple[str, Json]]:
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", _parse_object(line, f"{path}:{number}")
