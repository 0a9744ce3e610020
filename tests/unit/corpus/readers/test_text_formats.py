"""Readers of tsv, multiway_tsv, aligned and jsonl."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.readers import open_table
from pipeline.corpus.readers.lines import MAX_LINE_BYTES
from tests.unit.corpus.readers.written import PAIR, rows_of


def write(directory: Path, content: str | bytes, name: str = "a.txt") -> Path:
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_tsv_takes_the_first_two_fields_or_those_named(tmp_path: Path) -> None:
    path = write(tmp_path, "Hallo\tHello\td1\tx\n\tBye\td2\nJa \tYes\td3\t\t\t")
    assert rows_of(path, "tsv") == [("Hallo", "Hello"), ("", "Bye"), ("Ja ", "Yes")]
    columns = {"2": "document", "1": "en", "0": "de"}
    assert rows_of(path, "tsv", pair=None, columns=columns) == [
        ("d1", "Hello", "Hallo"), ("d2", "Bye", ""), ("d3", "Yes", "Ja ")
    ]  # fmt: skip
    entry = FileEntry(split="train", format="tsv", paths=("a",), columns=columns)
    table = open_table([path], entry, {})
    assert (table.columns, table.codes) == (("document", "en", "de"), ("en", "de"))


def test_tsv_quotes_nothing_and_keeps_other_control_characters(tmp_path: Path) -> None:
    path = write(tmp_path, '"a\t"b"\r\n\\t\\n\t\u2028\x85\x0b\r\r\n')
    assert rows_of(path, "tsv") == [('"a', '"b"'), ("\\t\\n", "\u2028\x85\x0b\r")]


def test_rows_of_many_blocks_are_the_rows_of_the_file(tmp_path: Path) -> None:
    rows = [(f"ä{number}" * (number % 90), f"{number}") for number in range(11_000)]
    path = write(tmp_path, "".join(f"{src}\t{tgt}\n" for src, tgt in rows))
    assert path.stat().st_size > 2 << 20
    assert rows_of(path, "tsv") == rows
    path = write(tmp_path, "".join(f"{src}\n" for src, _ in rows), "b.de")
    target = write(tmp_path, "".join(f"{tgt}\n" for _, tgt in rows), "b.en")
    assert rows_of([path, target], "aligned") == rows
    path = write(tmp_path, "".join(json.dumps({"de": src, "en": tgt}) + "\n" for src, tgt in rows))
    assert rows_of(path, "jsonl") == rows


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("a\tb\nc\n", {}, "a.txt: line 2: no tab in 'c'; put one tab between the fields"),
        ("a\tb\n\n", {}, "a.txt: line 2: no tab in an empty line; put one tab"),
        ("a\tb\n" * 50_000 + "a\n", {}, "a.txt: line 50001: no tab in 'a'"),
        ("Hallo Welt, wie geht es dir an diesem schönen Tage?\n", {}, "line 1: no tab in 'Hallo .* sc…'; put one"),
        ("a\tb\n", {"0": "de", "7": "en"}, "a.txt: line 1: 2 fields, but en is field 7"),
        (b"a\tb\n\xff\xfe\n", {}, r"a.txt: line 2: byte 4 \(0xff\) is not UTF-8"),
        ("a\tb\n".encode("utf-16"), {}, "a.txt: line 1: UTF-16, by its byte order mark; convert the file to UTF-8"),
        ("a\tb\n".encode("utf-16-le"), {}, r"a.txt: line 1: byte 1 \(0x00\) is NUL, as in binary files and UTF-16"),
        (b"a\tb\nc\t\0\n", {}, r"a.txt: line 2: byte 6 \(0x00\) is NUL"),
        ("a\tb\n" + "x" * (MAX_LINE_BYTES + 1) + "\ty\n", {}, "a.txt: line 2: longer than 1048576 bytes"),
        ("a\tb\n" + "x" * (10 << 20), {}, "a.txt: line 2: longer than 1048576 bytes; is the file text"),
    ],
)  # fmt: skip
def test_faults_of_a_tsv(tmp_path: Path, content: str | bytes, columns: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_of(write(tmp_path, content), "tsv", columns=columns)


def test_a_long_line_is_not_held(tmp_path: Path) -> None:
    """A line of 16 GiB does not fit into memory; it is refused after its first megabytes."""
    path = write(tmp_path, "a\tb\n")
    with path.open("ab") as file:
        file.truncate(1 << 34)  # a hole, which takes no disk
    with pytest.raises(ValueError, match="line 2: longer than 1048576 bytes"):
        rows_of(path, "tsv")


def test_a_header_of_codes_is_no_row(tmp_path: Path) -> None:
    path = write(tmp_path, "zh_CN\tEN\nx\ty\n")
    with pytest.raises(ValueError, match=r"line 1 holds the codes zh-Hans, en, as a header, .* or use multiway_tsv"):
        rows_of(path, "tsv", pair=LangPair("zh-Hans", "en"))
    assert rows_of(path, "multiway_tsv") == [("x", "y")]
    assert rows_of(path, "tsv") == [("zh_CN", "EN"), ("x", "y")], "other languages: a text may be anything"


def test_multiway_table_has_a_document_and_chosen_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "de\tzh_CN\tdocument\tEnglish\nHallo\t\td1\tHello\n\t你好\t\tHi\n")
    columns = {"English": "en", "zh_CN": "zh-Hans"}
    assert rows_of(path, "multiway_tsv", columns=columns) == [(None, "Hello"), ("你好", "Hi")]
    with pytest.raises(
        ValueError, match=r"line 1: language code 'English' is not of .*; a table of many languages begins with"
    ):
        rows_of(path, "multiway_tsv")
    renames = {"English": "en"}
    assert rows_of(path, "multiway_tsv", renames=renames) == [
        ("Hallo", None, "d1", "Hello"), (None, "你好", None, "Hi")
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"line 1: no column 'fr'; columns takes them from de, zh_CN, document, Engl"):
        rows_of(path, "multiway_tsv", columns={"fr": "fr", "de": "de"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\nde\ten\n", "a.txt is empty; its first line must hold the language codes"),
        ("de\t\nHallo\tHello\n", "line 1: language code '' is not of BCP-47 form"),
        ("de\tDE\nHallo\tHello\n", "line 1: de heads several columns; rename or remove one"),
        ("de\tdocument\nHallo\td\n", "line 1 holds one code, de; parallel text needs two"),
        ("de\ten\na\tb\nc\td\te\n", "line 3: 3 cells where the header has 2; add or remove tabs"),
        ("de\ten\n\n", "line 2: no tab in an empty line, where the header has 2 cells"),
        ("de\ten\tfr\na\tb\n", "line 2: 2 cells where the header has 3; add or remove tabs"),
        ("de en\nHallo Hello\n", "line 1: no tab in 'de en'; a table of many languages begins with a line of codes"),
    ],
)
def test_faults_of_a_multiway_table(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows_of(write(tmp_path, content), "multiway_tsv")


def test_aligned_files_of_different_length_are_counted_to_their_ends(tmp_path: Path) -> None:
    source, target = write(tmp_path, "a\n" * 70_000, "s"), write(tmp_path, "long enough\n" * 300_001, "t")
    with pytest.raises(ValueError, match=r"s has 70000 lines and .*t has 300001; aligned files must have the same"):
        rows_of([source, target], "aligned")
    assert rows_of([source, write(tmp_path, "b\r\n" * 69_999 + "b", "t")], "aligned")[-1] == ("a", "b")


@pytest.mark.parametrize(
    ("content", "pair", "columns", "expected"),
    [
        ('{"de": "Ja", "en": "Yes"}\n \n{"en": null, "de": ""}', PAIR, {}, [("Ja", "Yes"), ("", None)]),
        ('{"id": 1, "translation": {"en": "Yes", "de": "Ja"}}\n', PAIR, {}, [("Ja", "Yes")]),
        ('{"id": 1, "translation": {"en": "Yes", "id": "Ya"}}\n', LangPair("id", "en"), {}, [("Ya", "Yes")]),
        ('{"src": "Ja", "tgt": "Yes", "score": 0.5}\n', PAIR, {}, [("Ja", "Yes")]),
        ('{"target": "Yes", "source": "Ja"}\n', PAIR, {}, [("Ja", "Yes")]),
        ('{"zh_CN": "是", "en": "Yes"}\n', LangPair("en", "zh-Hans"), {}, [("Yes", "是")]),
        ('{"t": {"a": "Ja", "b": {"c": "Yes"}}, "n": 7}\n', None, {"t.a": "de", "t.b.c": "en", "n": "document"},
         [("Ja", "Yes", "7")]),
        ('{"a.b": "Ja", "a": {"c": "Yes"}}\n', PAIR, {"a.b": "de", "a.c": "en"}, [("Ja", "Yes")]),
        ('{"de": "\\ud83d\\ude00\\n", "en": "\\u0000"}\n', PAIR, {}, [("😀\n", "\0")]),
    ],
)  # fmt: skip
def test_fields_of_json_lines(
    tmp_path: Path, content: str, pair: LangPair | None, columns: Mapping[str, str], expected: list[tuple[str, ...]]
) -> None:
    assert rows_of(write(tmp_path, content), "jsonl", pair=pair, columns=columns) == expected


GOOD = '{"de": "a", "en": "b"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.txt: line 1: empty, without a single row"),
        ("\n \n", "a.txt: line 1: blank, as are those after it"),
        ('{"x": "a", "y": {"z": "b"}}\n', r'line 1: no fields of de-en \(there is x, y.z\); .* columns: {german: "de"'),
        ("[1]\n", r"line 1: no fields of de-en \(there is none\)"),
        (GOOD + '{"de": "a", "en": "b"\n', "line 2: malformed JSON .* correct the line"),
        (GOOD + GOOD.strip() * 2 + "\n", "line 2: malformed JSON .*Extra data"),
        (GOOD + '{"de":\n"a", "en": "b"}\n', "line 2: malformed JSON"),
        (GOOD + '{"de": "a"}\n', "line 2: no field 'en'; the line holds the fields de; add it, or correct columns"),
        (GOOD + '"de en"\n', "line 2: no field 'de'; the line holds no object"),
        (GOOD + "[]\n", "line 2: no field 'de'; the line holds no object"),
        (GOOD + '{"de": 1, "en": "b"}\n', "line 2: field 'de' is int and no text; quote it, or correct columns"),
        (GOOD + '{"de": "a", "en": NaN}\n', "line 2: field 'en' is float and no text"),
        (GOOD + '{"de": "a", "en": ["b"]}\n', "line 2: field 'en' is list and no text"),
        (GOOD + '{"de": "a", "en": "\\ud800"}\n', "line 2: field 'en' is no Unicode text"),
        ('{"a":' * 900 + "1" + "}" * 900 + "\n", r"line 1: no fields of de-en \(there is a.a.a.a.a.a.a.a.a\)"),
        (GOOD + '{"de": ' + "[" * 200_000 + "\n", "line 2: JSON nested too deep; flatten it"),
        (GOOD + '{"de": ' + "1" * 5000 + ', "en": "b"}\n', "line 2: malformed JSON .*4300 digits"),
        (GOOD + '{"de": "a", "en": "b\0"}\n', r"line 2: byte 43 \(0x00\) is NUL"),
        (GOOD * 60_000 + "{\n", "line 60001: malformed JSON"),
    ],
)  # fmt: skip
def test_faults_of_json_lines(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"a\.txt: .*" + message.removeprefix("a.txt: ")):
        rows_of(write(tmp_path, content), "jsonl")


def test_a_flag_is_no_document(tmp_path: Path) -> None:
    path = write(tmp_path, '{"de": "a", "en": "b", "d": true}\n')
    with pytest.raises(ValueError, match="line 1: field 'd' is bool and no text"):
        rows_of(path, "jsonl", columns={"de": "de", "en": "en", "d": "document"})
