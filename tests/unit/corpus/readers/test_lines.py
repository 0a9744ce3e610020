import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.corpus.readers.lines import MAX_LINE_BYTES, read_blocks
from pipeline.corpus.readers.streams import kind_of

_LINE = st.text(alphabet=st.characters(exclude_characters="\n\r\0", codec="utf-8"))


def lines_of(path: Path) -> list[str]:
    return [line for block in read_blocks(path) for line in block.texts().to_pylist()]


@given(st.lists(_LINE), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_are_given_back(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, closed: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    closed = closed or not lines or not lines[-1]  # an empty last line needs its end to be one
    path.write_bytes("".join(f"{line}{end}" for line in lines).removesuffix("" if closed else end).encode())
    expected = [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []
    assert lines_of(path) == expected


@given(st.binary(max_size=60))
def test_bytes_that_are_no_text_are_named_by_line_and_byte(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "text"
    path.write_bytes(data)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        where = f"{path}: line {line}: byte {error.start} (0x{data[error.start]:02x}) is not UTF-8"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            where = f"{path}: line 1: UTF-16"
        elif kind_of(data):
            where = f"{path}: line 1: not text, but {kind_of(data)}"
        with pytest.raises(ValueError, match=re.escape(where)):
            lines_of(path)
    else:
        nul = data.find(b"\0")
        if nul >= 0:
            line = data[:nul].count(b"\n") + 1
            where = f"{path}: line {line}: byte {nul} (0x00) is NUL"
            if kind_of(data):
                where = f"{path}: line 1: not text, but {kind_of(data)}"
            with pytest.raises(ValueError, match=re.escape(where)):
                lines_of(path)
        elif data.removesuffix(b"\r").replace(b"\r\n", b"\n").count(b"\r") > data.count(b"\n"):
            with pytest.raises(ValueError, match=re.escape(f"{path}: line 1: lines end in CR alone")):
                lines_of(path)
        else:
            assert "\n".join(lines_of(path)).count("\n") == max(0, len(data.removesuffix(b"\n").split(b"\n")) - 1)


def test_blocks_of_a_large_file_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(1, 400_001)))
    blocks = list(read_blocks(path))
    assert len(blocks) > 2
    assert [block.texts()[0].as_py() for block in blocks] == [str(block.first) for block in blocks]
    assert blocks[-1].texts()[-1].as_py() == "400000"
    with path.open("ab") as file:
        file.write(b"fine\n\xc3\x28\n")
    with pytest.raises(ValueError, match=r"text: line 400002: byte 2688900 \(0xc3\) is not UTF-8"):
        lines_of(path)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_may_be_a_mebibyte_and_no_longer(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a\n" + b"b" * MAX_LINE_BYTES + end)
    assert [len(line) for line in lines_of(path)] == [1, MAX_LINE_BYTES]
    path.write_bytes(b"a\n" + b"b" * (MAX_LINE_BYTES + 1) + end)
    with pytest.raises(ValueError, match="text: line 2: longer than 1048576 bytes; is the file text"):
        lines_of(path)
