"""Battle for Wesnoth: gettext catalogues in binary form (.mo)."""

import re
import struct
from collections.abc import Iterator

TAG = re.compile(r"<[^<>]*>")
CONTEXT = re.compile(r"^\w+\^")


def read_catalogue(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield (message, translation) of a catalogue, in its order, without the header; of plurals the singular.

    Text before the byte 4 is a context of the message and left out.
    """
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise ValueError("this is not a gettext catalogue (.mo)")
    count, originals, translations = struct.unpack_from(f"{order}3I", data, 8)
    for index in range(count):
        texts = []
        for table in (originals, translations):
            length, offset = struct.unpack_from(f"{order}2I", data, table + 8 * index)
            texts.append(data[offset : offset + length].decode("utf-8"))
        message, translation = texts
        message = message.rpartition("\x04")[2]
        if message:
            yield message.split("\0")[0], translation.split("\0")[0]


def align(translation: str, message: str) -> list[tuple[str, str]]:
    """Pair the paragraphs of a translation and a message where their numbers agree, else the whole texts.

    Mark-up in angle brackets is removed, and a word before `^` in the message, which tells meanings apart.
    """
    foreign, english = TAG.sub("", translation), TAG.sub("", CONTEXT.sub("", message))
    foreign_parts, english_parts = paragraphs(foreign), paragraphs(english)
    if len(foreign_parts) == len(english_parts):
        return list(zip(foreign_parts, english_parts, strict=True))
    return [(foreign, english)]


def paragraphs(text: str) -> list[str]:
    """Split a text at empty lines."""
    return [part for part in re.split(r"\n\n+", text) if part.strip()]
