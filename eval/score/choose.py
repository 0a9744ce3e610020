"""Choice among the translations of each line by a neural metric: minimum Bayes risk decoding by a user's command."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import fsum
from typing import Any

from eval.score.by_command import check_command, scores_by_command

OPTION = "--command"


def chosen_translations(source_lines: Iterable[str], answer_lines: Iterable[str], command: str) -> list[str]:
    """Return, for each line, that of its translations with the highest mean score against all of them.

    The command scores every translation with every translation of its line as the reference, itself included. So a
    line with N translations costs N² scores. The earlier translation wins a tie. A line without one gets "".

    source_lines: what `make translate` read with `format=json`. answer_lines: what it wrote.
    command: as of `scores_by_command`; higher numbers are better. It runs once for all lines.
    Raises ValueError if a line is no such object, the numbers of lines differ, or the command fails.
    """
    check_command(OPTION, command)
    sources = [_source(line, number) for number, line in enumerate(source_lines, start=1)]
    candidates = [_candidates(line, number) for number, line in enumerate(answer_lines, start=1)]
    if len(sources) != len(candidates):
        raise ValueError(f"there are {len(sources)} sources and {len(candidates)} answers; give one of each a line")
    triples = [
        (source, candidate, reference)
        for source, texts in zip(sources, candidates, strict=True)
        if len(texts) > 1  # a single one needs no choice
        for candidate in texts
        for reference in texts
    ]
    scores = iter(scores_by_command(OPTION, command, triples) if triples else [])
    return [_best(texts, scores) if len(texts) > 1 else "".join(texts) for texts in candidates]


def _best(texts: Sequence[str], scores: Iterator[float]) -> str:
    """Return the text with the highest mean score. scores: those of each text with every text, the first text's first.

    The means are compared by their sums, because all are over as many scores.
    """
    sums = [fsum(islice(scores, len(texts))) for _ in texts]
    return texts[max(range(len(texts)), key=sums.__getitem__)]


def _source(line: str, number: int) -> str:
    text = _object(line, f"line {number} of the sources").get("text")
    if not isinstance(text, str):
        raise ValueError(f'line {number} of the sources has no "text"; give what make translate read')
    return text


def _candidates(line: str, number: int) -> list[str]:
    name = f"line {number} of the answers"
    answer = _object(line, name)
    match answer.get("alternatives"):
        case [*alternatives] if all(isinstance(a, dict) and isinstance(a.get("text"), str) for a in alternatives):
            return [alternative["text"] for alternative in alternatives]
    raise ValueError(f'{name} has no "alternatives"; translate with format=json and decode.n_best=8, for example')


def _object(line: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}; translate with format=json") from error
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no JSON object; translate with format=json")
    return value
