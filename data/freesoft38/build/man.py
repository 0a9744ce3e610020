"""Manual pages: the text of roff sources, without the parts that nobody translates."""

import re

from .text import clean

PARAGRAPH = frozenset({"PP", "P", "LP", "TP", "IP", "HP", "TQ", "sp", "RS", "RE"})
HEADING = frozenset({"SH", "SS"})
FONT = frozenset({"B", "I", "R", "SM", "SB", "BI", "BR", "IB", "IR", "RB", "RI", "UR", "MT", "UE", "ME"})
ALTERNATING = frozenset({"BI", "BR", "IB", "IR", "RB", "RI"})
VERBATIM_BEGINS, VERBATIM_ENDS = frozenset({"nf", "EX"}), frozenset({"fi", "EE"})
# Name of two characters, then the character itself.
SPECIAL: dict[str, str] = dict(
    re.findall(
        r"(\S\S)(\S)",
        "aq' dq\" oq‘ cq’ lq“ rq” bu• em— en– hy- mi- co© rs\\ ti~ ha^ ga` sl/ pl+ Fo« Fc» tm™ rg® mu× "
        "lB[ rB] lC{ rC} at@ sh# Do$ eq= <=≤ >=≥ ->→ or| ba|",
    )
)
ESCAPE = re.compile(
    r"\\(?:f(?:\[[^]]*\]|\(..|.)|s[-+]?(?:\[[^]]*\]|\d)|\*(?:\[[^]]*\]|\(..|.)|m\[[^]]*\]|\((?P<two>..)"
    r"|\[(?P<long>[^]]*)\]|[hvwo]'[^']*'|(?P<one>.)|$)"
)


def unescape(text: str) -> str:
    """Replace the escapes of roff: fonts and sizes vanish, special characters become themselves."""

    def one(match: re.Match[str]) -> str:
        name = match["two"] or match["long"]
        if name:
            return SPECIAL.get(name, chr(int(name[1:], 16)) if re.fullmatch("u[0-9A-F]{4,5}", name) else "")
        return {"-": "-", "e": "\\", "\\": "\\", "~": " ", " ": " ", "0": " ", "'": "'", "`": "`", ".": "."}.get(
            match["one"] or "", ""
        )

    return ESCAPE.sub(one, text)


def arguments(text: str) -> list[str]:
    """Split the arguments of a macro: by spaces, or quoted with two quotes for one."""
    words = re.findall(r'"((?:[^"]|"")*)"?|((?:\\\\.|[^\s"])(?:\\\\.|\S)*)', text)
    return [bare if bare else quoted.replace('""', '"') for quoted, bare in words]


def page_sections(page: str) -> list[list[str]]:
    """Return the sections of a page: a heading and its paragraphs each. Verbatim parts are left out."""
    sections: list[list[str]] = [[]]
    current: list[str] = []
    verbatim = False

    def end() -> None:
        text = clean(unescape(" ".join(current)))
        if text:
            sections[-1].append(text)
        current.clear()

    for line in page.split("\n"):
        if line.startswith(('.\\"', "'\\\"", ".\\ ")) or line in (".", "'"):
            continue
        line = re.sub(r'\\".*', "", line)
        request = re.match(r"[.'][ \t]*([^\s\\]+)[ \t]*(.*)", line) if line[:1] in (".", "'") else None
        name, rest = (request[1], request[2]) if request else ("", line)
        if name in VERBATIM_BEGINS:
            end()
            verbatim = True
        elif name in VERBATIM_ENDS:
            verbatim = False
        elif name in HEADING:
            end()
            verbatim = False
            sections.append([])
            current.append(" ".join(arguments(rest)))
            end()
        elif name in PARAGRAPH or (not name and not line.strip()):
            end()
            verbatim = verbatim and name not in ("PP", "P", "LP", "TP")
        elif verbatim:
            continue
        elif name in FONT:
            words = arguments(rest)
            current.append(("" if name in ALTERNATING else " ").join(words))
        elif not name:
            current.append(line)
    end()
    return sections
