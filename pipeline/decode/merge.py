"""One file of translations from those of each process."""

import json
from pathlib import Path
from typing import Any

from pipeline.corpus.bitext import read_column
from pipeline.decode.shards import whole_lines


def translated_rows(directory: Path, pair: str) -> list[int]:
    """Rows that an interrupted attempt translated; a line that it left half-written is cut off."""
    rows: set[int] = set()
    for part in _parts(directory, pair):
        lines = whole_lines(part)
        part.write_text("".join(lines), encoding="utf-8")
        rows.update(json.loads(line)["row"] for line in lines)
    return sorted(rows)


def merge_translations(directory: Path, pair: str, bitext: Path) -> None:
    """Write `<pair>.jsonl` (source, hypothesis, reference, score; in the test set's order) and remove the parts."""
    parts = _parts(directory, pair)
    found: dict[int, dict[str, Any]] = {}
    for part in parts:
        for line in whole_lines(part):
            record = json.loads(line)
            found[record["row"]] = record
    sources, references = (read_column(bitext, "test", side) for side in ("src", "tgt"))
    if sorted(found) != list(range(len(sources))):
        raise AssertionError(f"{pair}: {len(found)} of {len(sources)} test sentences were translated")
    with (directory / f"{pair}.jsonl").open("w", encoding="utf-8") as stream:
        for row, (source, reference) in enumerate(zip(sources, references, strict=True)):
            record = {
                "source": source,
                "hypothesis": found[row]["hypothesis"],
                "reference": reference,
                "score": found[row]["score"],
            }
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    for part in parts:
        part.unlink()


def _parts(directory: Path, pair: str) -> list[Path]:
    return sorted(directory.glob(f"{pair}.rank-*.jsonl"))
