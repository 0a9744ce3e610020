"""A reader of TMX, the exchange format of translation memories, element by element.

lxml parses it with its own limits of depth and text (10 MB). It expands no entities and fetches nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from lxml import etree

from pipeline.corpus.manifest import FileEntry, to_bcp47
from pipeline.corpus.readers.fields import listed
from pipeline.corpus.readers.lines import MAX_LINE_BYTES
from pipeline.corpus.readers.streams import StreamError, read_chunks
from pipeline.corpus.tables import BATCH_ROWS, Table

_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = frozenset(("bpt", "ept", "it", "ph", "ut"))  # elements with codes of another format, not text
_PIECE_BYTES = 64 << 10
_GAP_BYTES = 8 << 20  # most bytes without the end of a unit, because they stay in memory
_BATCH_CHARS = 8 << 20
_CACHED = 1000

Unit = list[str | None]  # one text for each language


def read_tmx(paths: Sequence[Path], entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Read the units of a memory as a table, in the languages of the pair or of `columns`.

    A null means that a unit lacks a language. A code of the pair also matches languages with a region: EN-US serves en.
    Of several variants of a language in one unit, the first counts.
    """
    (path,) = paths
    codes = tuple(entry.columns.values())
    if entry.pair and not codes:
        codes = (entry.pair.src, entry.pair.tgt)

    def batches() -> Iterator[pa.RecordBatch]:
        rows: list[Unit] = []
        size = 0
        for unit in _units(path, _Languages(codes, renames)):
            rows.append(unit)
            size += len("".join(filter(None, unit)))
            if len(rows) == BATCH_ROWS or size > _BATCH_CHARS:
                yield _batch(rows, codes)
                rows, size = [], 0
        if rows:
            yield _batch(rows, codes)

    return Table(columns=codes, batches=batches())


class _Languages:
    """The columns that the languages of a file belong to.

    ranks: by name of a language: its rank (0 for an exact match, 1 without its region) and its column, or None.
    found: columns that some unit has.
    """

    def __init__(self, codes: Sequence[str], renames: Mapping[str, str]) -> None:
        self.codes, self.renames = codes, renames
        self.ranks: dict[str, tuple[int, int] | None] = {}
        self.found: set[int] = set()

    def match(self, name: str) -> tuple[int, int] | None:
        """Return rank and column of a language of the file, None if no column has it."""
        try:
            return self.ranks[name]
        except KeyError:
            match = self._match(name)
            if len(self.ranks) < _CACHED:
                self.ranks[name] = match
            return match

    def _match(self, name: str) -> tuple[int, int] | None:
        try:
            code = to_bcp47(name, self.renames)
        except ValueError:
            return None  # no BCP-47 code, so no column has it
        parts = code.split("-")
        general = "-".join(parts[: 2 if len(parts) > 1 and len(parts[1]) == 4 else 1])
        for rank, candidate in enumerate((code, general)):
            if candidate in self.codes:
                return rank, self.codes.index(candidate)
        return None

    def check(self, path: Path, line: int) -> None:
        """Raise ValueError if no unit has one of the languages."""
        missing = [code for column, code in enumerate(self.codes) if column not in self.found]
        if missing:
            raise ValueError(
                f"{path}: no unit up to the last line, line {line}, is in {' or '.join(missing)} (its languages are "
                f"{listed(sorted(self.ranks))}); correct pair, or map their names with codes"
            )


def _units(path: Path, languages: _Languages) -> Iterator[Unit]:
    parser = etree.XMLPullParser(
        events=("end",),
        tag="{*}tu",
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    line, gap = 1, 0
    try:
        for piece in _pieces(path):
            parser.feed(piece)
            line, gap = line + piece.count(b"\n"), gap + len(piece)
            for _, element in parser.read_events():
                gap = 0
                unit = _unit(path, element, languages)
                _forget(element)
                if unit.count(None) < len(unit):
                    yield unit
            if gap > _GAP_BYTES:
                raise ValueError(f"{path}: line {line}: {_GAP_BYTES} bytes without the end of a <tu>; is it a TMX?")
        parser.close()
    except StreamError as error:
        raise ValueError(f"{path}: from line {line} on: {error}") from error
    except etree.LxmlError as error:
        place, reason = getattr(error, "lineno", None) or line, getattr(error, "msg", None) or str(error)
        raise ValueError(f"{path}: line {place}: malformed XML ({reason[:200]}); correct the file") from error
    languages.check(path, line)


def _pieces(path: Path) -> Iterator[bytes]:
    for chunk in read_chunks(path):
        for start in range(0, len(chunk), _PIECE_BYTES):
            yield chunk[start : start + _PIECE_BYTES]


def _unit(path: Path, element: Any, languages: _Languages) -> Unit:
    texts: list[str | None] = [None] * len(languages.codes)
    ranks: dict[int, int] = {}
    for variant in element.iterchildren("{*}tuv"):
        match = languages.match(variant.get(_LANG) or _language(path, variant))
        if match is None or ranks.get(match[1], 2) <= match[0]:
            continue
        rank, column = match
        segment = next(variant.iterchildren("{*}seg"), None)
        if segment is None:
            raise ValueError(f"{path}: line {variant.sourceline}: <tuv> without <seg>; add its text")
        text = _text(path, segment) if len(segment) else segment.text or ""
        if len(text) > MAX_LINE_BYTES:
            raise ValueError(f"{path}: line {segment.sourceline}: longer than {MAX_LINE_BYTES} characters; cut it")
        texts[column], ranks[column] = text, rank
    languages.found.update(ranks)
    return texts


def _language(path: Path, variant: Any) -> str:
    """Return the language of a variant in the spelling of TMX 1.1."""
    name = variant.get("lang")
    if not name:
        raise ValueError(f'{path}: line {variant.sourceline}: <tuv> without its language; add xml:lang="de", say')
    return str(name)


def _text(path: Path, element: Any) -> str:
    """Return the text of an element, with its highlighted parts and without codes of another format."""
    parts = [element.text or ""]
    for child in element:
        if child.tag is etree.Entity:
            raise ValueError(f"{path}: line {child.sourceline}: entity {child.text} is not expanded; write its text")
        if child.tag.rpartition("}")[2] not in _CODES:
            parts.append(_text(path, child))
        parts.append(child.tail or "")
    return "".join(parts)


def _forget(element: Any) -> None:
    """Free the memory of a unit and of everything before it."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]


def _batch(rows: list[Unit], codes: Sequence[str]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=list(codes))
