"""Scores as text for reading, and as TSV and JSON that stay the same for programs."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from eval.comet import NAME as COMET
from eval.score_systems import TESTS, Scores

T = TypeVar("T")

CORPUS_COLUMNS = ("system", "metric", "score", "mean", "ci", "delta", "p_value", "signature")
SENTENCE_COLUMNS = ("system", "line", "metric", "score", "signature")


def as_json(scores: Scores) -> str:
    """An object: counts, test, metrics with signatures, systems with their scores; numbers in full."""
    return (
        json.dumps(
            {
                "sentences": scores.num_sentences,
                "references": len(scores.files.references),
                "test": scores.test or None,
                "baseline": scores.systems[0] if scores.test else None,
                "signatures": dict(scores.signatures),
                "systems": [{"system": system, **_of_system(scores, system)} for system in scores.systems],
            },
            ensure_ascii=False,
            indent=1,
        )
        + "\n"
    )


def as_tsv(scores: Scores) -> str:
    """One row a system and metric, or with sentences one a system, line (from 1) and metric; numbers in full, empty
    where there is none."""
    if scores.sentences:
        rows = [
            [system, str(line), metric, repr(value), scores.signatures[metric]]
            for system in scores.systems
            for line in range(1, scores.num_sentences + 1)
            for metric in scores.metrics
            for value in [scores.sentences[system, metric][line - 1]]
        ]
        return _lines([SENTENCE_COLUMNS, *rows], "\t".join)
    rows = []
    for system in scores.systems:
        for metric in scores.metrics:
            cell = scores.corpus[system, metric]
            values = (cell.score, cell.mean, cell.ci, cell.delta, cell.p_value)
            rows.append([system, metric, *("" if v is None else repr(v) for v in values), scores.signatures[metric]])
    return _lines([CORPUS_COLUMNS, *rows], "\t".join)


def as_text(scores: Scores) -> str:
    """A table of systems by metrics, what its columns mean, and the signatures."""
    if scores.sentences:
        table = [["line", "system", *scores.metrics]]
        for line in range(scores.num_sentences):
            for system in scores.systems:
                cells = [_score(metric, scores.sentences[system, metric][line]) for metric in scores.metrics]
                table.append([str(line + 1), system, *cells])
    else:
        table = _corpus_table(scores)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    texts = [_lines(table, lambda row: "  ".join(map(str.ljust, row, widths)).rstrip())]
    if scores.test:
        texts.append(
            f"delta: against {scores.systems[0]}; p: {TESTS[scores.test]}, uncorrected for the number of systems\n"
        )
    texts.append(_lines(scores.signatures.items(), lambda item: f"{item[0]}: {item[1]}"))
    return "\n".join(texts)


FORMATS: Mapping[str, Callable[[Scores], str]] = {"text": as_text, "tsv": as_tsv, "json": as_json}


def _of_system(scores: Scores, system: str) -> dict[str, Any]:
    if scores.sentences:
        return {"sentences": {metric: list(scores.sentences[system, metric]) for metric in scores.metrics}}
    return {"scores": {metric: vars(scores.corpus[system, metric]) for metric in scores.metrics}}


def _corpus_table(scores: Scores) -> list[list[str]]:
    """Columns delta and p only with a test, and an interval only where there is one."""
    table = [["system"], *([system] for system in scores.systems)]
    for metric in scores.metrics:
        cells = [scores.corpus[system, metric] for system in scores.systems]
        columns = [[metric, *(_score(metric, cell.score) for cell in cells)]]
        if any(cell.ci is not None for cell in cells):
            columns.append(["95 %", *("" if cell.ci is None else f"±{cell.ci:.2f}" for cell in cells)])
        if any(cell.p_value is not None for cell in cells):
            columns.append(["delta", *("" if cell.delta is None else f"{cell.delta:+.2f}" for cell in cells)])
            columns.append(["p", *("" if cell.p_value is None else f"{cell.p_value:.4f}" for cell in cells)])
        for row, *more in zip(table, *columns, strict=True):
            row += more
    return table


def _score(metric: str, value: float) -> str:
    return f"{value:.4f}" if metric == COMET else f"{value:.2f}"


def _lines(rows: Iterable[T], shown: Callable[[T], str]) -> str:
    return "".join(shown(row) + "\n" for row in rows)
