"""Descriptions of the tables that fetch writes: languages, rows, source and licence of each; light to import."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DOCUMENT = "document"  # column with the name of the document of a row
TABLES = "tables.json"


@dataclass(frozen=True, kw_only=True)
class FetchedTable:
    """A table with the rows of one split from one source.

    columns: BCP-47 codes, and `document` if it is known.
    filled: by code, the number of rows whose text is not empty.
    tag: marker that is put before each source sentence.
    commit: commit of a hub's data set.
    """

    path: Path
    split: str
    columns: tuple[str, ...]
    rows: int
    filled: dict[str, int]
    source: str
    tag: str
    licence: str
    citation: str
    commit: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(column for column in self.columns if column != DOCUMENT)

    def about(self) -> dict[str, str]:
        """Return the description of the source for a record."""
        return {
            "name": self.source,
            "tag": self.tag,
            "licence": self.licence,
            "citation": self.citation,
            "commit": self.commit,
        }


def write_tables(tables: Sequence[FetchedTable], out: Path) -> None:
    """Write the descriptions of some tables in `out` to `tables.json` there."""
    content = [{**asdict(table), "path": table.path.name} for table in tables]
    (out / TABLES).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_tables(directory: Path) -> list[FetchedTable]:
    """Return the tables that a stage wrote to `directory`."""
    content: list[dict[str, Any]] = json.loads((directory / TABLES).read_text(encoding="utf-8"))
    return [
        FetchedTable(**{**item, "path": directory / item["path"], "columns": tuple(item["columns"])})
        for item in content
    ]
