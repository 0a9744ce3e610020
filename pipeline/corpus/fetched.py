"""The tables that fetch leaves: what each holds and where it comes from; light to import."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DOCUMENT = "document"  # column that says which document a row is from
TABLES = "tables.json"


@dataclass(frozen=True, kw_only=True)
class FetchedTable:
    """Rows of one split from one source. columns: BCP-47 codes, and `document` where known. filled: rows by code whose
    text is not empty. tag: marker put before each source sentence."""

    path: Path
    split: str
    columns: tuple[str, ...]
    rows: int
    filled: dict[str, int]
    source: str
    tag: str
    licence: str
    citation: str
    commit: str = ""  # of a hub's data set

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(column for column in self.columns if column != DOCUMENT)

    def about(self) -> dict[str, str]:
        """What a record says of the source."""
        return {
            "name": self.source,
            "tag": self.tag,
            "licence": self.licence,
            "citation": self.citation,
            "commit": self.commit,
        }


def write_tables(tables: Sequence[FetchedTable], out: Path) -> None:
    """Write what is known of some tables in `out` beside them."""
    content = [{**asdict(table), "path": table.path.name} for table in tables]
    (out / TABLES).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_tables(directory: Path) -> list[FetchedTable]:
    """The tables that a stage left in `directory`."""
    content: list[dict[str, Any]] = json.loads((directory / TABLES).read_text(encoding="utf-8"))
    return [
        FetchedTable(**{**item, "path": directory / item["path"], "columns": tuple(item["columns"])})
        for item in content
    ]
