"""The table of docs/experiment.md on what the experts of a mixture specialise in, from the archive of its run."""

import json
from pathlib import Path
from typing import Any

from bench.experiment.archive import read_archive
from bench.published.cells import markdown
from bench.published.experiment import DIRECTORY
from eval.records.specialisation import SPECIALISATION

ARCHIVE = DIRECTORY / "results" / "moe_8e_s1.tar.xz"


def experts(archive: Path = ARCHIVE) -> str:
    """Return the pieces of each expert, a line an expert. Raises OSError if there is no archive."""
    layers: dict[str, Any] = json.loads(read_archive(archive)[SPECIALISATION])["layers"]
    lines = [
        (f"`{layer}`", str(number), " ".join(_code(piece["text"]) for piece in expert["pieces"]))
        for layer, content in layers.items()
        for number, expert in enumerate(content["experts"])
    ]
    return markdown(("layer", "expert", "pieces"), lines, texts=(0, 2))


def _code(piece: str) -> str:
    """Return a piece as code within a Markdown table."""
    escaped = piece.replace("|", r"\|")
    return f"`` {escaped} ``" if "`" in piece else f"`{escaped}`"
