"""The section on faults: how many translations are in a wrong language, empty, copied, repeating or cut off."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from eval.language import pair_labels, text_direction
from eval.records.faults import FAULTS, LANGUAGE, REFERENCE, FaultyLine, load_faulty_lines
from eval.records.results import RunResults, System
from eval.records.run_record import load_translations
from eval.records.scores import SYSTEM
from eval.report.plots.faults import FaultPoint, FaultPoints
from eval.report.sections.fault_tables import (
    ANY,
    COLUMNS,
    ComparedFaults,
    FaultTable,
    PairFaults,
    Shares,
    compare_faults,
    pairs_not_judged,
)
from eval.score.faults import LEVEL, MIN_LETTERS, MIN_PROBABILITY, MORE_OFTEN, NGRAM, NGRAM_UNSPACED

_NUM_EXAMPLES = 3  # of each fault and system
_MOST_CHARACTERS = 400  # of a text that is shown
_COUNTED = {ANY: "faulty translations", LANGUAGE: "translations in a wrong language"}


def faults_section(systems: Sequence[System]) -> Mapping[str, Any] | None:
    """Return the values of faults_section.html.j2, or None if no run has counts of faults.

    The baselines are those of the first run that has some.
    """
    compared = compare_faults(systems)
    if not compared.tables:
        return None
    runs = [run for system in systems for run in system.runs]
    return {
        "titles": FAULTS,
        "columns": COLUMNS,
        "min_letters": MIN_LETTERS,
        "min_probability": MIN_PROBABILITY,
        "ngram": NGRAM,
        "ngram_unspaced": NGRAM_UNSPACED,
        "more_often": MORE_OFTEN,
        "level": LEVEL,
        "compared": compared,
        "not_judged": pairs_not_judged(runs),
        "examples": _examples(compared.systems) if all(run.record.sample_sentences for run in runs) else None,
    }


def fault_points(compared: ComparedFaults, runs: Sequence[RunResults], fault: str = ANY) -> FaultPoints | None:
    """Return the points of the figure of a fault, or None where no multilingual system is surely above the references.

    None too if all pairs have the same number of training pairs. Pairs whose share is unknown have no point.

    runs: all runs, whose languages decide the shortest labels that tell pairs apart.
    fault: ANY or LANGUAGE.
    """
    rows = [row for table in compared.tables.values() for row in table.pairs.values() if row.shares[fault] is not None]
    if len({row.train_pairs for row in rows}) < 2 or not any(fault in row.notable for row in rows):
        return None
    languages = {pair: sides for run in runs for pair, sides in run.record.languages.items()}
    labels = pair_labels(list(languages), languages)

    def points(shares_of: Sequence[tuple[PairFaults, Shares]]) -> list[FaultPoint]:
        return [
            FaultPoint(label=labels[row.pair], train_pairs=row.train_pairs, share=share)
            for row, shares in shares_of
            if (share := shares[fault]) is not None
        ]

    def of_table(table: FaultTable) -> list[FaultPoint]:
        return points([(row, row.shares) for row in table.pairs.values()])

    by_pair = {row.pair: row for table in reversed(compared.all_tables) for row in table.pairs.values()}
    return FaultPoints(
        what=_COUNTED[fault],
        systems={label: of_table(table) for label, table in compared.tables.items()},
        baseline=of_table(compared.baseline) if compared.baseline else [],
        floors=points([(row, row.floors) for row in by_pair.values()]),
    )


def _examples(systems: Sequence[System]) -> list[tuple[str, list[tuple[str, list[dict[str, Any]]]]]]:
    """Return the worst faults of the first seed of each system: (label, [(title of the fault, sentences)])."""
    examples = []
    for system in systems:
        run = system.runs[0]
        worst_lines = worst(load_faulty_lines(run.directory))
        groups = [(FAULTS[fault], [_sentence(run, line) for line in lines]) for fault, lines in worst_lines.items()]
        examples.append((system.label, groups))
    return examples


def worst(lines: Sequence[FaultyLine], count: int = _NUM_EXAMPLES) -> dict[str, list[FaultyLine]]:
    """Return the lines of SYSTEM with the highest degrees, at most `count` of each fault, from different pairs first.

    Lines whose reference has the same fault are left out, and faults without a line.
    """
    excused = {(line.pair, line.line, line.fault) for line in lines if line.system == REFERENCE}
    own = [line for line in lines if line.system == SYSTEM and (line.pair, line.line, line.fault) not in excused]
    ranks: Counter[tuple[str, str]] = Counter()
    ranked: dict[str, list[tuple[int, FaultyLine]]] = {fault: [] for fault in FAULTS}
    for line in sorted(own, key=lambda line: -line.degree):
        ranked[line.fault].append((ranks[line.fault, line.pair], line))
        ranks[line.fault, line.pair] += 1
    return {
        fault: [line for _, line in sorted(of_fault, key=lambda item: (item[0], -item[1].degree))][:count]
        for fault, of_fault in ranked.items()
        if of_fault
    }


def _sentence(run: RunResults, line: FaultyLine) -> dict[str, Any]:
    translation = load_translations(run.directory, SYSTEM, line.pair)[line.line - 1]
    source, target = run.record.languages[line.pair]
    return {
        "pair": line.pair,
        "line": line.line,
        "language": line.language,
        "texts": [
            (name, code, text_direction(code), _shortened(text))
            for name, code, text in (
                ("source", source, translation.source),
                ("reference", target, translation.reference),
                ("translation", target, translation.hypothesis),
            )
        ],
    }


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} … ({len(text):,} characters)"
