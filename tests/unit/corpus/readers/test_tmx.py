from pathlib import Path

import pytest

from pipeline.corpus.languages import LangPair
from tests.unit.corpus.readers.written import PAIR, rows_of, tmx

UNIT = '<tu><tuv xml:lang="de"><seg>Ja</seg></tuv><tuv xml:lang="en"><seg>Yes</seg></tuv></tu>'
XML = '<?xml version="1.0"?>\n'


def memory(body: str, head: str = XML, attributes: str = 'version="1.4"') -> str:
    return f"{head}<tmx {attributes}><header><note>n</note></header><body>\n{body}</body></tmx>"


def write(directory: Path, content: str | bytes) -> Path:
    path = directory / "a.tmx"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    "content",
    [
        memory(UNIT),
        memory(UNIT.replace("xml:lang", "lang")),
        memory(UNIT.replace('"de"', '"DE-de"').replace('"en"', '"EN-US"')),
        memory(UNIT, attributes='xmlns="http://www.lisa.org/tmx14" version="1.4"'),
        memory(UNIT, head=XML + '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'),
        memory(UNIT, head=XML + '<!DOCTYPE tmx SYSTEM "http://example.org/tmx14.dtd">\n'),
        memory(UNIT.replace("<seg>Ja", "<prop>x</prop><note>No</note><seg>J<!-- no --><?no?>a")),
        memory(UNIT.replace(">Ja", "><![CDATA[Ja]]>")),
        memory(UNIT).replace("1.0", "1.0\" encoding=\"UTF-16").encode("utf-16"),
    ],
)  # fmt: skip
def test_one_unit_in_many_spellings(tmp_path: Path, content: str | bytes) -> None:
    assert rows_of(write(tmp_path, content), "tmx") == [("Ja", "Yes")]


def test_markup_inside_of_a_segment(tmp_path: Path) -> None:
    inside = (
        'a <bpt i="1">{\\b </bpt>bold<ept i="1">}</ept> <hi type="x">h<ph>%s</ph>i</hi> &lt;&#228;&gt;'
        '<ph>x<sub>footnote</sub></ph><it pos="begin">[</it><ut>u</ut> <g>kept</g>.'
    )
    content = memory(UNIT.replace("Ja", inside))
    assert rows_of(write(tmp_path, content), "tmx") == [("a bold hi <ä> kept.", "Yes")]


def test_languages_match_exactly_or_without_their_region(tmp_path: Path) -> None:
    def unit(**texts: str) -> str:
        variants = (f'<tuv xml:lang="{c.replace("_", "-")}"><seg>{t}</seg></tuv>' for c, t in texts.items())
        return f"<tu>{''.join(variants)}</tu>\n"

    content = memory(
        unit(en_US="region", de="a", en="exact")
        + unit(en_GB="first", en_US="second", de_AT="b")
        + unit(fr="only French")
        + unit(de="no English")
        + unit(zh_CN="汉", en="Han")
        + unit(sr_Latn_RS="lat", sr="ср")
    )
    path = write(tmp_path, content)
    assert rows_of(path, "tmx")[:4] == [("a", "exact"), ("b", "first"), ("no English", None), (None, "Han")]
    assert rows_of(path, "tmx", pair=LangPair("zh-Hans", "en"))[-1] == ("汉", "Han")
    assert rows_of(path, "tmx", pair=LangPair("sr", "sr-Latn")) == [("ср", "lat")]
    assert rows_of(path, "tmx", pair=None, columns={"0": "fr", "1": "de", "2": "en"})[2] == ("only French", None, None)


def test_many_units(tmp_path: Path) -> None:
    rows = [(f"ä{number}", f"<{number}>&") for number in range(10_500)]
    assert rows_of(write(tmp_path, tmx(rows)), "tmx") == rows


ENTITY = "<!DOCTYPE tmx [<!ENTITY x {}>]>\n"
LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(12))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: malformed XML"),
        ("Hallo\tHello\n", "line 1: malformed XML"),
        (b"\x89PNG\r\n\x1a\n\0\0", "line 1: malformed XML"),
        (memory(UNIT + "\n")[:-10], "line 4: malformed XML"),
        (memory(UNIT + "\n<tu>" + UNIT.replace("</seg>", "", 1)), "line 4: malformed XML"),
        (memory(UNIT).encode().replace(b"Ja", b"\xff"), "line 3: malformed XML"),
        (memory(UNIT, head='<?xml version="1.0" encoding="klingon"?>\n'), "line 1: malformed XML"),
        (memory("\n<tu><tuv xml:lang='de'/></tu>"), "line 4: <tuv> without <seg>; add its text"),
        (memory("\n<tu><tuv><seg>a</seg></tuv></tu>"), "line 4: <tuv> without its language; add xml:lang"),
        (memory(""), r"line 3, is in de or en \(its languages are none\)"),
        ("<html><body/></html>", r"line 1, is in de or en \(its languages are none\)"),
        (memory(UNIT.replace('"en"', '"fr"')), r"line 3, is in en \(its languages are de, fr\); correct pair, or map"),
        (memory(UNIT.replace("Ja", "&x;"), head=ENTITY.format('"boom"')), "line 3: entity &x; is not expanded; write"),
        (memory(UNIT.replace("Ja", "&x;"), head=ENTITY.format('SYSTEM "file:///etc/passwd"')), "line 3: entity &x; is"),
        (memory(UNIT.replace("Ja", "&l12;"), head=f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{LAUGHS}]>\n'), "line [13]: "),
        (memory(UNIT.replace('"de"', '"&l12;"'), head=f'<!DOCTYPE tmx [<!ENTITY l0 "ha">{LAUGHS}]>\n'),
         "line 3: malformed XML .*amplification"),
        (memory(UNIT + "<a>" * 300), "line 3: malformed XML .*depth"),
        (memory(UNIT.replace("Ja", "J" * ((1 << 20) + 1))), "line 3: longer than 1048576 characters; cut it"),
        (memory(UNIT.replace("Ja", "J" * (9 << 20))), "line 3: 8388608 bytes without the end of a <tu>; is it a TMX"),
    ],
)  # fmt: skip
def test_faults_are_named_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=rf"a\.tmx: .*{message}"):
        rows_of(write(tmp_path, content), "tmx", pair=PAIR)


def test_nothing_is_fetched(tmp_path: Path) -> None:
    """The external subset that defines the entity exists, but it is not read."""
    (tmp_path / "tmx.dtd").write_text('<!ENTITY x "secret">')
    head = f'{XML}<!DOCTYPE tmx SYSTEM "{(tmp_path / "tmx.dtd").as_uri()}" [<!ENTITY % p SYSTEM "tmx.dtd"> %p;]>\n'
    with pytest.raises(ValueError, match="line 4: entity &x; is not expanded"):
        rows_of(write(tmp_path, memory(UNIT.replace("Ja", "&x;"), head=head)), "tmx")
