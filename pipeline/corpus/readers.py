"""Readers of the formats that a corpus may have; a format is one function and one line of FORMATS."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, read_manifest, to_bcp47

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of one file, read as they are asked for."""

    columns: tuple[str, ...]  # BCP-47 codes
    rows: Iterator[tuple[str, ...]]  # one cell a column
    sparse: bool  # an empty cell means that there is no translation, not that a side is missing


Reader = Callable[[Sequence[Path], LangPair | None, Mapping[str, str]], Table]


def read_lines(path: Path) -> Generator[str, None, None]:
    """Lines of a UTF-8 file, without line ends (LF or CRLF) and without a byte order mark at its start.

    Raises ValueError with the line and the byte offset where the file is not UTF-8.
    """
    offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                at = offset + len(raw) - len(line) + error.start
                raise ValueError(
                    f"{path}: line {number}: byte {at} (0x{line[error.start]:02x}) is not UTF-8 "
                    f"({error.reason}); convert the file to UTF-8"
                ) from error
            offset += len(raw)
            yield text.removesuffix("\n").removesuffix("\r")


def read_multiway_tsv(paths: Sequence[Path], pair: LangPair | None, renames: Mapping[str, str]) -> Table:
    """Table whose first line holds codes; an empty cell means no translation; nothing is quoted."""
    (path,) = _take(paths, 1, "multiway_tsv", "one path")
    lines = read_lines(path)
    header = next(lines, "")
    lines.close()
    if not header:
        raise ValueError(f"{path} is empty; its first line must hold the language codes, separated by tabs")
    try:
        columns = tuple(to_bcp47(code, renames) for code in header.split("\t"))
    except ValueError as error:
        raise ValueError(f"{path}: line 1: {error}") from error
    for code in columns:
        if columns.count(code) > 1:
            raise ValueError(f"{path}: line 1: {code} heads several columns; rename or remove one")
    if len(columns) < 2:
        raise ValueError(f"{path}: line 1 holds one code, {columns[0]}; parallel text needs two")

    def rows() -> Iterator[tuple[str, ...]]:
        for number, line in enumerate(read_lines(path), start=1):
            cells = tuple(line.split("\t"))
            if len(cells) != len(columns):
                raise ValueError(
                    f"{path}: line {number}: {len(cells)} cells where the header has {len(columns)}; "
                    "add or remove tabs (an empty cell means no translation)"
                )
            if number > 1:
                yield cells

    return Table(columns=columns, rows=rows(), sparse=True)


def read_aligned(paths: Sequence[Path], pair: LangPair | None, renames: Mapping[str, str]) -> Table:
    """Two text files of which each line of the second translates the same line of the first."""
    source, target = _take(paths, 2, "aligned", "source and target")
    if pair is None:
        raise ValueError(f"{source}: format aligned needs the pair of its files; add one, as pair: de-en")

    def rows() -> Iterator[tuple[str, ...]]:
        for src, tgt in zip_longest(read_lines(source), read_lines(target)):
            if src is None or tgt is None:
                counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
                raise ValueError(
                    f"{source} has {counts[0]} lines and {target} has {counts[1]}; "
                    "aligned files must have the same number"
                )
            yield src, tgt

    return Table(columns=(pair.src, pair.tgt), rows=rows(), sparse=False)


FORMATS: dict[str, Reader] = {
    "multiway_tsv": read_multiway_tsv,
    "aligned": read_aligned,
}


def open_table(directory: Path, entry: FileEntry, renames: Mapping[str, str]) -> Table:
    """Table of one entry of a manifest. Raises ValueError for an unknown format or a missing file."""
    if entry.format not in FORMATS:
        raise ValueError(f"files: format {entry.format!r} is unknown; the formats are {', '.join(FORMATS)}")
    paths = [directory / name for name in entry.paths]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} does not exist; put the file there or take it out of the manifest")
    return FORMATS[entry.format](paths, entry.pair, renames)


def corpus_codes(directory: Path) -> tuple[str, ...]:
    """Codes of all columns of a corpus, sorted; reads manifest and headers only."""
    manifest = read_manifest(directory)
    found = (open_table(directory, entry, manifest.codes).columns for entry in manifest.files)
    return tuple(sorted({code for columns in found for code in columns}))


def _take(paths: Sequence[Path], num_paths: int, name: str, what: str) -> Sequence[Path]:
    if len(paths) != num_paths:
        listed = ", ".join(str(path) for path in paths)
        raise ValueError(f"{listed}: format {name} takes {what}, not {len(paths)} files; correct the entry")
    return paths
