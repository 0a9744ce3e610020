"""Output of scores: text for people, and TSV and JSON for programs, whose form does not change."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from eval.score.comet import NAME as COMET
from eval.score.file_scores import TESTS, Scores
from eval.text_table import aligned

T = TypeVar("T")

CORPUS_COLUMNS = ("system", "metric", "score", "mean", "ci", "delta", "p_value", "signature")
SENTENCE_COLUMNS = ("system", "line", "metric", "score", "signature")


def as_json(scores: Scores) -> str:
    """Return a JSON object: counts, the test, signatures by metric, and systems with their scores in full precision."""
    return (
        json.dumps(
            {
                "sentences": scores.num_sentences,
                "references": len(scores.files.references),
                "test": scores.test or None,
                "baseline": scores.systems[0] if scores.test else None,
                "signatures": dict(scores.signatures),
                "systems": [{"system": system, **_system_values(scores, system)} for system in scores.systems],
            },
            ensure_ascii=False,
            indent=1,
        )
        + "\n"
    )


def as_tsv(scores: Scores) -> str:
    """Return one row a system and metric, or a system, line (from 1) and metric for sentence scores.

    Numbers are in full precision. A cell without a value is empty.
    """
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
    """Return a table of systems by metrics, the meaning of its columns, and the signatures."""
    if scores.sentences:
        table = [["line", "system", *scores.metrics]]
        for line in range(scores.num_sentences):
            for system in scores.systems:
                cells = [_score(metric, scores.sentences[system, metric][line]) for metric in scores.metrics]
                table.append([str(line + 1), system, *cells])
    else:
        table = _corpus_table(scores)
    texts = [aligned(table, left=None) + "\n"]
    if scores.test:
        texts.append(
            f"delta: against {scores.systems[0]}; p: {TESTS[scores.test]}, uncorrected for the number of systems\n"
        )
    texts.append(_lines(scores.signatures.items(), lambda item: f"{item[0]}: {item[1]}"))
    return "\n".join(texts)


FORMATS: Mapping[str, Callable[[Scores], str]] = {"text": as_text, "tsv": as_tsv, "json": as_json}


def _system_values(scores: Scores, system: str) -> dict[str, Any]:
    if scores.sentences:
        return {"sentences": {metric: list(scores.sentences[system, metric]) for metric in scores.metrics}}
    return {"scores": {metric: vars(scores.corpus[system, metric]) for metric in scores.metrics}}


def _corpus_table(scores: Scores) -> list[list[str]]:
    """Return the rows of the table. A metric has columns for interval, delta and p only if they were computed."""
    table = [["system"], *([system] for system in scores.systems)]
    for metric in scores.metrics:
        cells = [scores.corpus[system, metric] for system in scores.systems]
        columns = [[metric, *(_score(metric, cell.score) for cell in cells)]]
        if any(cell.ci is not None for cell in cells):
            columns.append(["95 %", *("" if cell.ci is None else f"±{cell.ci:.2f}" for cell in cells)])
        if any(cell.p_value is not None for cell in cells):
            columns.append(["delta", *("" if cell.delta is None else f"{cell.delta:+.2f}" for cell in cells)])
            columns.append(["p", *("" if cell.p_value is None else f"{cell.p_value:.4f}" for cell in cells)])
        for row, *cells_of_metric in zip(table, *columns, strict=True):
            row += cells_of_metric
    return table


def _score(metric: str, value: float) -> str:
    return f"{value:.4f}" if metric == COMET else f"{value:.2f}"


def _lines(rows: Iterable[T], write: Callable[[T], str]) -> str:
    return "".join(write(row) + "\n" for row in rows)
