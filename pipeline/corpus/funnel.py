"""What cleaning says of a pair: `funnel.json`; light to import."""

import json
from pathlib import Path
from typing import Any

FUNNEL = "funnel.json"


def funnel(directory: Path) -> dict[str, Any]:
    """Content of `funnel.json`: pair; per split read, changed by normalisation, removed by rule and kept; examples by
    rule; sources, each with name, tag, licence, citation, read, kept and examples, in the order of the training rows;
    not_judged: why a rule does not apply to a side."""
    content: dict[str, Any] = json.loads((directory / FUNNEL).read_text(encoding="utf-8"))
    return content
