"""The section on further test sets, which a run scores itself by `score.test_sets`, or `make evaluate` afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eval.number_format import share
from eval.records.decisive import decisive_decoding
from eval.records.results import RunResults
from eval.records.run_record import EVALUATED, TEST_SETS, Json, RunRecord, load_run, load_translations
from eval.records.scores import METRICS, ONE_STEP, PIVOT, SYSTEM, TITLES, ScoreRow, load_scores
from eval.report.sections.further_faults import SHOWN_FAULTS, Column, FurtherFaults, further_faults, load_counted
from eval.score.faults import LEVEL
from eval.score.macro import complete_mean, resource_classes

NOTABLE_OVERLAP = 0.01  # of a pair's lines
MOST_PAIRS = 5  # that the sentence on the overlap names


@dataclass(frozen=True, kw_only=True)
class Mean:
    """Mean scores over some pairs, by column. A system without a score for one of the pairs has none."""

    resource: str
    num_pairs: int
    scores: Mapping[Column, float]


@dataclass(frozen=True, kw_only=True)
class FurtherTest:
    """The scores of several runs on one test set.

    title: the name of the test set, and of which runs the scores are if it has several tables.
    columns: headings of the systems by run and system.
    untrained: labels of runs with the pairs that they were not trained on.
    scores: by metric and pair, then by column.
    means: over classes of the pairs by training data (`resource_classes`) and over all, by metric.
    faults: of the same runs.
    signatures: title of a metric, its signature, and the pairs that have it.
    ensembles: names of the runs whose models translated together with a run's, by the run's label.
    decoding: settings of decoding in which a test set differs from the run's own test sets, by the run's label.
    directories: of the results, by the run's label.
    overlaps: how much of the test set each run was trained on, by the run's label (`overlap_text`).
    page: name of the page with all translations, empty if one of the results may not be shown.
    """

    title: str
    columns: Mapping[Column, str]
    lines: Mapping[str, int]
    untrained: frozenset[tuple[str, str]]
    scores: Mapping[str, Mapping[str, Mapping[Column, ScoreRow]]]
    means: Mapping[str, Sequence[Mean]]
    faults: FurtherFaults
    signatures: Sequence[tuple[str, str, str]]
    ensembles: Mapping[str, Sequence[str]]
    decoding: Mapping[str, Sequence[str]]
    directories: Mapping[str, Path]
    overlaps: Mapping[str, str]
    page: str


@dataclass(frozen=True, kw_only=True)
class _Result:
    """The record and the scores of one run on one test set, from a directory."""

    run: RunResults
    directory: Path
    record: RunRecord
    rows: Sequence[ScoreRow]

    def place(self, *, several: bool) -> str:
        """Return the directory of the test set's directory, for readers. several: of runs, so that it needs a label."""
        folder = self.directory.parent.name
        return f"{self.run.label}/{folder}" if several else folder

    @property
    def current(self) -> bool:
        """True if the run still has the models that translated."""
        return has_models_of(self.run.record, self.record)

    @property
    def decoding(self) -> list[str]:
        """The settings of decoding that are not those of the run's own test sets."""
        return changed_decoding(self.run.record, self.record)

    @cached_property
    def sentences(self) -> Mapping[str, int]:
        """A hash of the sources and references of each pair."""
        return {pair: hash(self._sides(pair)) for pair in self.record.pairs}

    def _sides(self, pair: str) -> tuple[tuple[str, str], ...]:
        system = (*self.record.systems_of(pair), SYSTEM)[0]
        lines = load_translations(self.directory, system, pair)
        return tuple((line.source, line.reference) for line in lines)

    def shares_table(self, other: "_Result") -> bool:
        """Return whether the other result is of another run, and of the same sentences."""
        if self.run is other.run:
            return False
        return all(other.sentences.get(pair, content) == content for pair, content in self.sentences.items())


def changed_decoding(run: RunRecord, test_set: RunRecord) -> list[str]:
    """Return the settings of decoding that are not those of the run's own test sets, as a user writes them.

    The models of an ensemble are named elsewhere. Settings at their default may be absent from a record.
    """
    own, used = (decisive_decoding(record.config.get("decode", {})) for record in (run, test_set))
    excluded = ("ensemble", "batch_sentences")  # the latter is of an old version
    changed = [key for key in {**own, **used} if own and key not in excluded and own.get(key) != used.get(key)]
    return [f"decode.{key}={used[key]}" if key in used else f"the default of decode.{key}" for key in changed]


def has_models_of(run: RunRecord, test_set: RunRecord) -> bool:
    """Return whether a run still has the models that translated a further test set."""
    return all(
        _models(ledgers) <= _models(run.systems.get(SYSTEM if system == PIVOT else system, ()))
        for system, ledgers in test_set.systems.items()
    )


def _models(ledgers: Sequence[Json]) -> set[str]:
    return {str((ledger.get("artifacts") or {}).get("model")) for ledger in ledgers}


def _results(runs: Sequence[RunResults]) -> list[_Result]:
    """Return the results of some runs, by test set. Those that are not scored yet are left out."""
    results = []
    for run in runs:
        for file in (
            file for folder in (TEST_SETS, EVALUATED) for file in run.directory.glob(f"{folder}/*/scores.csv")
        ):
            if (file.parent / "run.json").is_file():
                rows = load_scores(file)
                results.append(_Result(run=run, directory=file.parent, record=load_run(file.parent), rows=rows))
    return sorted(results, key=lambda result: result.directory.name)


def _tables(results: Sequence[_Result]) -> list[list[_Result]]:
    """Return the results of each table: those of one test set, if their runs differ and their sentences do not."""
    tables: list[list[_Result]] = []
    for result in results:
        for table in tables:
            if table[0].directory.name == result.directory.name and all(map(result.shares_table, table)):
                table.append(result)
                break
        else:
            tables.append([result])
    return tables


def further_page(name: str) -> str:
    """Return the name of the page with all translations of a further test set."""
    return f"translations-{name}.html"


def _further_test(results: Sequence[_Result], *, several: bool, title: str, name: str) -> FurtherTest:
    """Return a table. name: what no other table is called, in the name of a file."""
    columns: dict[Column, str] = {}
    scores: dict[str, dict[str, dict[Column, ScoreRow]]] = {}
    signatures: dict[tuple[str, str], dict[str, None]] = {}
    lines: dict[str, int] = {}
    for result in results:
        label = result.run.label
        for system in result.record.systems:
            heading = system_title(result.record, system)
            columns[label, system] = f"{label}, {heading}" if several else heading
        for row in result.rows:
            scores.setdefault(row.metric, {}).setdefault(row.pair, {})[label, row.system] = row
            signatures.setdefault((row.metric, row.signature), {})[row.pair] = None
            lines[row.pair] = row.n_test
    return FurtherTest(
        title=title,
        columns=columns,
        lines=lines,
        untrained=frozenset((result.run.label, pair) for result in results for pair in result.record.untrained),
        scores={metric: scores[metric] for metric in (*METRICS, *scores) if metric in scores},
        means={metric: means for metric in scores if (means := _means(scores[metric], list(columns)))},
        faults=further_faults([load_counted(result.run.label, result.directory) for result in results]),
        signatures=[
            (_title(metric), signature, "all pairs" if len(pairs) == len(lines) else ", ".join(pairs))
            for (metric, signature), pairs in signatures.items()
        ],
        ensembles={result.run.label: result.record.ensemble for result in results if result.record.ensemble},
        decoding={result.run.label: changed for result in results if (changed := result.decoding)},
        directories={result.run.label: result.directory for result in results},
        overlaps={result.run.label: overlap_text(result.record) for result in results},
        page=further_page(name) if all(result.record.sample_sentences for result in results) else "",
    )


def _means(scores: Mapping[str, Mapping[Column, ScoreRow]], columns: Sequence[Column]) -> list[Mean]:
    """Return the means over the pairs' classes and over all; none for one pair.

    Of runs with different training data, the one with the most rows of a pair decides its class.
    """
    train_pairs = {pair: max(row.train_pairs for row in of_pair.values()) for pair, of_pair in scores.items()}
    if len(train_pairs) < 2:
        return []
    means = []
    for resource, pairs in resource_classes(train_pairs).items():
        of_class = {
            column: complete_mean([row.score if (row := scores[pair].get(column)) else None for pair in pairs])
            for column in columns
        }
        present = {column: mean for column, mean in of_class.items() if mean is not None}
        if present:
            means.append(Mean(resource=resource, num_pairs=len(pairs), scores=present))
    return means


def system_title(record: RunRecord, system: str) -> str:
    """Return the name of a system for readers. record: of a further test set."""
    return ONE_STEP if system == SYSTEM and {*record.pairs} == {*record.untrained} else TITLES.get(system, system)


def overlap_text(record: RunRecord) -> str:
    """Return a sentence on the lines of a further test set that share text with the training rows of its run."""
    if not record.overlap:
        return "The training text was not compared with these lines."
    lines, shared = (sum(counts[key] for counts in record.overlap.values()) for key in ("lines", "either"))
    shares = {pair: counts["either"] / counts["lines"] for pair, counts in record.overlap.items()}
    most = sorted((pair for pair in shares if shares[pair] >= NOTABLE_OVERLAP), key=lambda pair: -shares[pair])
    named = ", ".join(f"{pair} {share(shares[pair])}" for pair in most[:MOST_PAIRS])
    pairs = f"; most in {named}" if named and len(shares) > 1 else ""
    return (
        f"{shared:,} of {lines:,} lines ({share(shared / lines)}) share a sentence or a run of 8 words with the "
        f"training text{pairs}."
    )


def _title(metric: str) -> str:
    return METRICS[metric].title if metric in METRICS else metric


def further_tests_section(runs: Sequence[RunResults]) -> Mapping[str, Any] | None:
    """Return the values of further_tests_section.html.j2, or None without such test sets."""
    results, several = _results(runs), len(runs) > 1
    places = {result.directory: result.place(several=several) for result in results}
    tables = _tables([result for result in results if result.current])
    names = [table[0].directory.name for table in tables]
    tests = [
        _further_test(
            table,
            several=several,
            title=f"{name} ({', '.join(places[result.directory] for result in table)})"
            if names.count(name) > 1
            else name,
            name=f"{name}-{number}" if name in names[:number] else name,
        )
        for number, (name, table) in enumerate(zip(names, tables, strict=True))
    ]
    outdated = [f"{places[result.directory]}/{result.directory.name}" for result in results if not result.current]
    if not results:
        return None
    return {"tests": tests, "title": _title, "outdated": outdated, "shown_faults": SHOWN_FAULTS, "level": LEVEL}
