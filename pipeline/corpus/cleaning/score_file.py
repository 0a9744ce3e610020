"""Scores of rows in a file that others computed: numbers in one column of a tab-separated file.

A line belongs to the row with its texts, or line N to row N of a source. N: lines with a score.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.cleaning.characters import mix
from pipeline.corpus.cleaning.codepoints import Bools, Hashes, Texts
from pipeline.corpus.cleaning.worst import Scores
from pipeline.corpus.languages import LangPair
from pipeline.corpus.learned_config import SCORE_COUNTS, ScoreFiles
from pipeline.corpus.readers.lines import read_blocks
from pipeline.corpus.tables import read_batches, small_batches

_KEYS, _VALUES = "keys.npy", "values.npy"
_SETTINGS = ("column", "source_column", "target_column")


@dataclass(frozen=True, kw_only=True)
class _Lines:
    """Some lines of a file. sides: texts of source and target, empty where lines have none."""

    scores: list[float]
    sides: tuple[list[str], ...]


def read_score_file(path: Path, settings: ScoreFiles, pair: LangPair, tables: Sequence[Path], out: Path) -> None:
    """Write the score of each row of a file, found by the hash of the row's texts after normalisation.

    Of several lines with the same texts the first one counts.

    tables: rows of the source, in order.
    Raises ValueError, with file and line, for a file without lines, a line without the column, a score that is no
    finite number, another number of lines than the source has rows, and texts of which no row of the source is one.
    """
    keys, values = [np.zeros(0, np.uint64)], [np.zeros(0, np.float64)]
    num_lines = 0
    for lines in _read(path, settings):
        values.append(np.array(lines.scores))
        num_lines += len(lines.scores)
        if settings.has_texts:
            keys.append(_keys(pa.array(lines.sides[0], pa.string()), pa.array(lines.sides[1], pa.string())))
    if not num_lines:
        raise ValueError(f"{path} has no lines with scores; give the file that the scoring wrote")
    scores = np.concatenate(values)
    rows = [part for table in tables for part in _rows(table, pair)]
    num_rows = sum(len(mask) for mask, _ in rows)
    of_rows = np.concatenate([np.zeros(0, np.uint64), *(part for _, part in rows)])
    if settings.has_texts:
        of_lines = np.concatenate(keys)
        matches = int(np.isin(of_rows, of_lines).sum())
        if not matches:
            raise ValueError(
                f"{path}: none of its {num_lines} lines has the texts of one of the {num_rows} rows of {pair}; correct "
                f"corpus.learned.source_column={settings.source_column} and "
                f"target_column={settings.target_column}"
            )
    else:
        if num_lines != num_rows:
            raise ValueError(
                f"{path} has {num_lines} scores, but the source has {num_rows} rows of {pair}; score the same file, or "
                "give lines their texts and name corpus.learned.source_column and target_column"
            )
        filled = np.concatenate([np.zeros(0, bool), *(mask for mask, _ in rows)])
        of_lines, scores = of_rows, scores[filled]
        matches = len(of_rows)
    unique, first = np.unique(of_lines, return_index=True)
    np.save(out / _KEYS, unique)
    np.save(out / _VALUES, scores[first])
    counts = {"lines": num_lines, "rows": num_rows, "rows_with_a_score": matches}
    (out / SCORE_COUNTS).write_text(json.dumps(counts) + "\n", encoding="utf-8")


def scores_of(cleaned: Path, scores: Path) -> Scores:
    """Return the score of each training row of a cleaned pair, NaN where `read_score_file` found none: [N]."""
    keys, values = np.load(scores / _KEYS), np.load(scores / _VALUES)
    parts = [np.zeros(0)]
    for batch in iter_bitext(cleaned, "train"):
        wanted_keys = _keys(batch["src"], batch["tgt"])
        places = np.minimum(np.searchsorted(keys, wanted_keys), len(keys) - 1)
        parts.append(np.where(keys[places] == wanted_keys, values[places], np.nan))
    return np.concatenate(parts)


def _rows(table: Path, pair: LangPair) -> Iterator[tuple[Bools, Hashes]]:
    """Yield, for some rows at a time, a mask of those with two sides, and the hashes of these."""
    for batch in read_batches(table, (pair.src, pair.tgt)):
        for part in small_batches(batch):
            src, tgt = part.column(0), part.column(1)
            mask = src.is_valid().to_numpy(zero_copy_only=False) & tgt.is_valid().to_numpy(zero_copy_only=False)
            chosen = pa.array(mask)
            yield mask, _keys(src.filter(chosen), tgt.filter(chosen))


def _keys(src: pa.StringArray, tgt: pa.StringArray) -> Hashes:
    """Return the hash of each row."""
    keys: Hashes = mix(Texts.normalized(src).hashes) + Texts.normalized(tgt).hashes
    return keys


def _read(path: Path, settings: ScoreFiles) -> Iterator[_Lines]:
    """Yield the lines of a file, after the header that it has if columns are named."""
    columns = settings.columns
    places: dict[str, int] | None = None
    for block in read_blocks(path):
        lines, first = block.texts().to_pylist(), block.first
        if places is None:
            heads = lines[0].split("\t")
            has_header = any(isinstance(column, str) and column for column in columns.values())
            places = {name: _place(path, heads, name, column) for name, column in columns.items()}
            if has_header:
                lines, first = lines[1:], first + 1
        yield _cells(path, lines, first, places, settings.has_texts)


def _place(path: Path, heads: list[str], name: str, column: str | int) -> int:
    """Return the place of a column from 0; -1 is the last. heads: the cells of the first line."""
    if isinstance(column, int):
        return column - 1
    if not column:
        return -1
    if column not in heads:
        raise ValueError(f"{path}: line 1 has no column {column} (corpus.learned.{name}), but {', '.join(heads)}")
    return heads.index(column)


def _cells(path: Path, lines: list[str], first: int, places: dict[str, int], has_texts: bool) -> _Lines:
    score, *sides = (places[name] for name in _SETTINGS)
    scores: list[float] = []
    texts: tuple[list[str], ...] = ([], []) if has_texts else ()
    for number, line in enumerate(lines, first):
        cells = line.split("\t")
        if len(cells) <= max((score, *(sides if has_texts else ()))):
            raise ValueError(
                f"{path}: line {number} has {len(cells)} columns, fewer than corpus.learned says; correct column, "
                "source_column and target_column"
            )
        scores.append(_number(path, number, cells[score]))
        for side, place in zip(texts, sides, strict=False):
            side.append(cells[place])
    return _Lines(scores=scores, sides=texts)


def _number(path: Path, number: int, cell: str) -> float:
    """Return the score in a cell. Raises ValueError unless it is a finite number."""
    try:
        score = float(cell)
    except ValueError:
        score = math.nan
        remedy = "if line 1 is a header, name the column as in it by corpus.learned.column" if number == 1 else ""
    else:
        remedy = ""
    if not math.isfinite(score):
        shown_cell = cell if len(cell) <= 40 else f"{cell[:40]}…"
        raise ValueError(
            f"{path}: line {number}: the score {shown_cell!r} is no finite number; "
            f"{remedy or 'correct the line, or choose the column of the scores by corpus.learned.column'}"
        )
    return score
