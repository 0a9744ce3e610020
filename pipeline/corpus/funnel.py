"""The record of the cleaning of a pair, `funnel.json`; light to import."""

import json
from pathlib import Path
from typing import Any

FUNNEL = "funnel.json"


def funnel(directory: Path) -> dict[str, Any]:
    """Return the content of `funnel.json`.

    pair: name of the pair.
    train, dev, test: numbers of rows: read, changed (by normalisation), removed (by rule) and kept.
    examples: removed training rows, by rule.
    sources: sources in the order of their training rows, each with name, tag, licence, citation, read, kept, examples.
    not_judged: reasons why a rule does not apply to a side.
    """
    content: dict[str, Any] = json.loads((directory / FUNNEL).read_text(encoding="utf-8"))
    return content
