"""Debian's package descriptions: apt's Translation indexes, English and translated."""

import re
from collections.abc import Iterable, Iterator

ITEM = re.compile(r"^ +[-*+o] +")


def read_index(lines: Iterable[str], language: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield package, MD5 of the English description, and the lines of the description in the language."""
    package = checksum = ""
    description: list[str] = []
    inside = False
    field = f"Description-{language}:"
    for line in [*lines, ""]:
        text = line.rstrip("\n")
        if not text:
            if package and description:
                yield package, checksum, description
            package, checksum, description, inside = "", "", [], False
        elif text.startswith("Package: "):
            package, inside = text[9:], False
        elif text.startswith("Description-md5: "):
            checksum, inside = text[17:], False
        elif text.startswith(field):
            description, inside = [text[len(field) :].strip()], True
        elif inside and text.startswith(" "):
            description.append(text[1:])


def paragraphs(description: list[str]) -> list[str]:
    """Return the short description and each paragraph and list item of the long one."""
    parts = [description[0]]
    begins = True
    for line in description[1:]:
        item = ITEM.match(line)
        if line.strip() == ".":
            begins = True
        elif item or begins:
            parts.append(line[item.end() :] if item else line)
            begins = False
        else:
            parts[-1] += " " + line
    return parts
