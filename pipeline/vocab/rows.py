"""Which rows of an old embedding each row of a new one starts from, where a vocabulary was made of another one."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ROWS = "rows.json"


@dataclass(frozen=True, kw_only=True)
class RowSources:
    """The old rows whose mean each new row is.

    vocabulary: sha256 of the models of the old vocabulary.
    source, target: for each piece of the new models the ids of old ones; equal if the vocabulary is shared.
    """

    vocabulary: str
    source: list[list[int]]
    target: list[list[int]]

    def save(self, directory: Path) -> None:
        """Write rows.json beside the models of the new vocabulary."""
        (directory / ROWS).write_text(json.dumps(asdict(self), separators=(",", ":")), encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> "RowSources | None":
        """Read rows.json of a vocabulary; None if it was not made of another one."""
        if not (directory / ROWS).is_file():
            return None
        return cls(**json.loads((directory / ROWS).read_text(encoding="utf-8")))
