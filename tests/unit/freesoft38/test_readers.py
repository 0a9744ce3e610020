"""The readers of the corpus freesoft38 take the text out of each format, and align it."""

import struct

import pytest

from data.freesoft38.build import catalogues, descriptions, help_pages, mallard, man

HELP = """<html><body><div id="DisplayArea"><h1 id="hd_1">Open a File</h1>
<p id="par_1" class="paragraph">Press <span class="switchinline"><span class="MAC">Command</span><span
id="default">Ctrl</span></span>+<span class="keycode">O</span>.<!-- not text --></p>
<p class="paragraph">has no id</p>
<p id="par_1">the same id again</p>
<p id="par_2" class="code">Print x</p>
<div id="box">no block</div></div><p id="bm_module">after the page</p></body></html>"""

PAGE = """<page xmlns="http://projectmallard.org/1.0/" id="x"><info><desc>Change a name.</desc>
<credit><name>Ann</name></credit></info><title>Rename
   a file</title><steps><item><p>Press <key>F2</key>.</p></item></steps><p/>
<p>&#x73;ee <link xref="y"/> it</p>
<table><tr><td>a cell</td><td><p>a paragraph</p></td></tr></table></page>"""

MANUAL = r""".\" a comment
.TH LS 1
.SH NAME
ls \- list directory contents
.SH "RETURN VALUE"
.\" another
The call
.BR stat (2)
gives \fIzero\fP, or
.B \-1
on \(lqerror\(rq.
.nf
int stat(void);
.fi
.PP
Second.
.TP
.B EFAULT
Bad address."""


def catalogue(messages: dict[str, str], order: str = "<") -> bytes:
    """Return a gettext catalogue in binary form."""
    pairs = [(key.encode(), value.encode()) for key, value in sorted(messages.items())]
    tables, strings = [b"", b""], b""
    start = 28 + 16 * len(pairs)
    for side in (0, 1):
        for pair in pairs:
            tables[side] += struct.pack(f"{order}2I", len(pair[side]), start + len(strings))
            strings += pair[side] + b"\0"
    header = struct.pack(f"{order}7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    return header + tables[0] + tables[1] + strings


def test_help_blocks_are_known_by_id_and_occurrence():
    """Only blocks with an id are taken, without code and without the keys of macOS."""
    assert help_pages.page_blocks(HELP.encode()) == {
        ("hd_1", 0): "Open a File",
        ("par_1", 0): "Press Ctrl+O.",
        ("par_1", 1): "the same id again",
    }


def test_mallard_blocks_are_in_document_order_and_keep_empty_ones():
    """A credit is no text; an empty paragraph keeps its place, as the other language may fill it."""
    assert mallard.page_blocks(PAGE.encode()) == [
        "Change a name.",
        "Rename a file",
        "Press F2.",
        "",
        "see it",
        "a cell",
        "a paragraph",
    ]


def test_mallard_does_not_read_entities_from_files(tmp_path):
    """A page cannot pull in a file of the reader's machine."""
    (tmp_path / "secret").write_text("secret")
    entity = f'<!DOCTYPE page [<!ENTITY x SYSTEM "{tmp_path}/secret">]>'
    page = f'{entity}<page xmlns="{mallard.NAMESPACE[1:-1]}"><p>a &x; b</p></page>'
    assert "secret" not in "".join(mallard.page_blocks(page.encode()))


def test_manual_sections_hold_paragraphs_without_fonts_and_examples():
    """Macros of fonts join words as roff does, verbatim parts are left out, a tag belongs to its paragraph."""
    assert man.page_sections(MANUAL) == [
        [],
        ["NAME", "ls - list directory contents"],
        ["RETURN VALUE", "The call stat(2) gives zero, or -1 on “error”.", "Second.", "EFAULT Bad address."],
    ]


@pytest.mark.parametrize(
    ("source", "text"),
    [(r"a\-b\&c", "a-bc"), (r"\fBx\fR\s-1y\s0", "xy"), (r"\[u00E9]t\('e", "ét"), (r"back\eslash", r"back\slash")],
)
def test_roff_escapes(source, text):
    """Fonts, sizes and unknown characters vanish; known characters become themselves."""
    assert man.unescape(source) == text


@pytest.mark.parametrize("order", ["<", ">"])
def test_catalogue_yields_messages_without_header_and_context(order):
    """Both byte orders are read; the header has no message; of plurals the singular is taken."""
    data = catalogue({"": "Language: de", "menu\x04Open": "Öffnen", "one\0many": "eins\0viele"}, order)
    assert list(catalogues.read_catalogue(data)) == [("Open", "Öffnen"), ("one", "eins")]


def test_other_files_are_no_catalogues():
    """A file of another kind is an error, not an empty catalogue."""
    with pytest.raises(ValueError, match="not a gettext catalogue"):
        list(catalogues.read_catalogue(b"PK\x03\x04" + bytes(40)))


def test_messages_are_aligned_by_paragraph_where_the_numbers_agree():
    """A word before ^ tells messages apart and is no text; neither is mark-up."""
    assert catalogues.align("<b>Eins</b>\n\nZwei", "female^One\n\n\nTwo") == [("Eins", "One"), ("Zwei", "Two")]
    assert catalogues.align("Eins. Zwei", "One\n\nTwo") == [("Eins. Zwei", "One\n\nTwo")]
    assert catalogues.align("keine", "time limit^none") == [("keine", "time limit^none")]


INDEX = """Package: hello
Description-md5: abc
Description-de: Beispielpaket
 Erster Absatz, der auf zwei
 Zeilen steht.
 .
 Es kann:
  * grüßen
    und winken
  - gehen

Package: empty
Description-md5: def
Description-fr: Exemple
"""


def test_descriptions_have_paragraphs_and_list_items():
    """The short description comes first; marks of lists are no text; entries of other languages are left out."""
    ((package, checksum, lines),) = descriptions.read_index(INDEX.splitlines(keepends=True), "de")
    assert (package, checksum) == ("hello", "abc")
    assert [" ".join(part.split()) for part in descriptions.paragraphs(lines)] == [
        "Beispielpaket",
        "Erster Absatz, der auf zwei Zeilen steht.",
        "Es kann:",
        "grüßen und winken",
        "gehen",
    ]
