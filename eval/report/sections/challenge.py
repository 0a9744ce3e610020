"""The section on challenge sets: what each kind of changed line costs each system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from eval.records.challenge import CHALLENGE_FILE, KINDS, MIN_LINES, ChallengeRow, load_challenge
from eval.records.results import RunResults
from eval.records.run_record import EVALUATED, TEST_SETS, RunRecord, load_run
from eval.report.sections.further_tests import changed_decoding, has_models_of, system_title


@dataclass(frozen=True, kw_only=True)
class Mean:
    """Means of a kind over pairs, each pair counting the same."""

    plain: float
    changed: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class ChallengeTable:
    """The losses of one run on one challenge set.

    title: the name of the set, with that of the run if the report has several.
    systems: headings by system.
    means: by title of the kind, then by system, over the pairs that have the kind; empty for a single pair.
    num_pairs: pairs that have the kind, by its title.
    rows: by pair and title of the kind, then by system.
    ensemble: names of the runs whose models translated together with the run's.
    decoding: settings of decoding in which the set differs from the run's own test sets.
    untrained: pairs that the model was not trained on.
    lines: lines by pair and title of the kind.
    """

    title: str
    systems: Mapping[str, str]
    means: Mapping[str, Mapping[str, Mean]]
    num_pairs: Mapping[str, int]
    rows: Mapping[tuple[str, str], Mapping[str, ChallengeRow]]
    lines: Mapping[tuple[str, str], int]
    ensemble: Sequence[str]
    decoding: Sequence[str]
    untrained: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class ChallengeSection:
    """The tables of all runs.

    outdated: sets that an older model of the run translated.
    min_lines: lines of a kind below which a loss is shown without its interval.
    """

    tables: Sequence[ChallengeTable]
    outdated: Sequence[str]
    min_lines: int = MIN_LINES


def challenge_section(runs: Sequence[RunResults]) -> ChallengeSection | None:
    """Return the values of challenge_section.html.j2, or None without challenge sets."""
    tables: list[ChallengeTable] = []
    outdated: list[str] = []
    for run in runs:
        for folder in (TEST_SETS, EVALUATED):
            for file in sorted(run.directory.glob(f"{folder}/*/{CHALLENGE_FILE}")):
                record, title = load_run(file.parent), f"{file.parent.name} ({folder}/)"
                if len(runs) > 1:
                    title = f"{run.label}, {title}"
                if not has_models_of(run.record, record):
                    outdated.append(title)
                    continue
                decoding = changed_decoding(run.record, record)
                tables.append(_table(title, record, decoding, load_challenge(file.parent)))
    return ChallengeSection(tables=tables, outdated=outdated) if tables or outdated else None


def _table(title: str, record: RunRecord, decoding: Sequence[str], rows: Sequence[ChallengeRow]) -> ChallengeTable:
    systems = {system: system_title(record, system) for system in record.systems}
    by_place: dict[tuple[str, str], dict[str, ChallengeRow]] = {}
    for row in rows:
        by_place.setdefault((row.pair, KINDS[row.kind].title), {})[row.system] = row
    kinds = [kind.title for kind in KINDS.values() if any(title == kind.title for _, title in by_place)]
    several = len({pair for pair, _ in by_place}) > 1
    return ChallengeTable(
        title=title,
        systems=systems,
        means={kind: _means(kind, systems, by_place) for kind in kinds} if several else {},
        num_pairs={kind: sum(title == kind for _, title in by_place) for kind in kinds},
        rows=by_place,
        ensemble=record.ensemble,
        decoding=decoding,
        untrained=record.untrained,
        lines={place: next(iter(of_place.values())).n_test for place, of_place in by_place.items()},
    )


def _means(
    kind: str, systems: Mapping[str, str], by_place: Mapping[tuple[str, str], Mapping[str, ChallengeRow]]
) -> dict[str, Mean]:
    """Return the means over the pairs, of the systems that have all of them."""
    places = [of_place for (_, title), of_place in by_place.items() if title == kind]
    means = {}
    for system in systems:
        if all(system in of_place for of_place in places):
            rows = [of_place[system] for of_place in places]
            plain, changed = fmean(row.plain for row in rows), fmean(row.changed for row in rows)
            means[system] = Mean(plain=plain, changed=changed, loss=plain - changed)
    return means
