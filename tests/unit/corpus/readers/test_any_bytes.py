"""For any content of a file, a reader gives rows or names the file and the place of the fault."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.corpus import formats
from tests.unit.corpus.readers.written import COMPRESSIONS, FORMATS, rows_of

# Texts that a cell of every format can hold: without tabs, line ends, byte order marks and characters outside XML.
_CELL = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"], exclude_characters="\ufeff\ufffe"),
    max_size=12,
)
_ROWS = st.lists(st.tuples(_CELL, _CELL), min_size=1, max_size=8)
_TOKENS = {
    "tsv": ["\t", "\n", "\r\n", "a", "ä", "\ufeff", "\0", '"'],
    "multiway_tsv": ["\t", "\n", "de", "en", "zh_CN", "document", "x-y", "\r"],
    "jsonl": ["{", "}", "[", "]", ":", ",", '"de"', '"en"', '"src"', '"\\ud800"', "null", "1e999", "\n", " ", "\\"],
    "tmx": ["<tmx>", "</tmx>", "<tu>", "</tu>", '<tuv lang="de">', '<tuv xml:lang="EN-us">', "<tuv>", "</tuv>", "<seg>",
            "</seg>", "<ph>", "</ph>", "a", "&amp;", "&x;", "\n", "<!--", "-->", "<![CDATA[", "]]>",
            "<?xml version='1.0'?>", '<!DOCTYPE tmx [<!ENTITY x "y">]>'],
    "parquet": ["PAR1", "\0", "\x15", "\x04", "de"],
}  # fmt: skip


@st.composite
def _files(draw: st.DrawFn, format_: str) -> bytes:
    """Draw the bytes of a valid file, of random tokens, or any bytes; then overwrite, remove or repeat some of them."""
    written = _ROWS.map(FORMATS[format_])
    tokens = st.lists(st.sampled_from(_TOKENS[format_]), max_size=40).map(lambda words: "".join(words).encode())
    data = bytearray(draw(st.one_of(written, written, tokens, st.binary(max_size=80))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        until = min(len(data), at + draw(st.integers(0, 6)))
        kind = draw(st.sampled_from(["overwrite", "cut", "drop", "repeat", "flip"]))
        if kind == "overwrite":
            data[at:until] = draw(st.binary(max_size=6))
        elif kind == "cut":
            del data[at:]
        elif kind == "drop":
            del data[at:until]
        elif kind == "repeat":
            data[at:at] = data[at:until] * draw(st.integers(1, 9))
        elif at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


def _check(paths: Sequence[Path], format_: str) -> None:
    try:
        rows = rows_of(paths, format_)
    except ValueError as error:
        message = str(error)
        assert any(str(path) in message for path in paths), message
        assert format_ == "parquet" or "line" in message, message
        assert len(message) < 2000, message
    else:
        assert all(cell is None or isinstance(cell, str) for row in rows for cell in row)


@pytest.mark.parametrize("format_", FORMATS)
@given(data=st.data())
def test_any_bytes_give_rows_or_name_the_file(format_: str, data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(["", "", *COMPRESSIONS])) if format_ != "parquet" else ""
    content = data.draw(_files(format_))
    if data.draw(st.booleans()):
        content = COMPRESSIONS[suffix](content)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"file{suffix}"
        path.write_bytes(content)
        _check([path], format_)


@given(source=_files("tsv"), target=_files("tsv"))
def test_any_two_files_give_rows_or_name_one(source: bytes, target: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory) / "a.de", Path(directory) / "a.en"]
        for path, content in zip(paths, (source, target), strict=True):
            path.write_bytes(content)
        _check(paths, "aligned")


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
@settings(max_examples=settings.default.max_examples * 3 // 10)
@given(data=st.data())
def test_damaged_compression_gives_rows_or_names_the_file(suffix: str, data: st.DataObject) -> None:
    content = bytearray(COMPRESSIONS[suffix](FORMATS["tsv"](data.draw(_ROWS))))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"file.tsv{suffix}"
        path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
        _check([path], "tsv")


def test_every_format_of_files_is_written() -> None:
    assert {*FORMATS, "aligned"} == {name for name, format_ in formats.FORMATS.items() if not format_.needs.dataset}


@pytest.mark.parametrize("format_", [*FORMATS, "aligned"])
@settings(max_examples=settings.default.max_examples * 4 // 10)
@given(rows=_ROWS, suffix=st.sampled_from(sorted(COMPRESSIONS)))
def test_written_rows_are_read_back(format_: str, rows: list[tuple[str, str]], suffix: str) -> None:
    suffix = "" if format_ == "parquet" else suffix  # Parquet is compressed inside
    compress = COMPRESSIONS[suffix]
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory) / f"{side}{suffix}" for side in ("a", "b")][: 2 if format_ == "aligned" else 1]
        if format_ == "aligned":
            for side, path in enumerate(paths):
                path.write_bytes(compress("".join(f"{row[side]}\n" for row in rows).encode()))
        else:
            paths[0].write_bytes(compress(FORMATS[format_](rows)))
        expected = [tuple(cell or None for cell in row) for row in rows] if format_ == "multiway_tsv" else rows
        assert rows_of(paths, format_) == expected
