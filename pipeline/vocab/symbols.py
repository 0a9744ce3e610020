"""Ids of the special symbols, which exports and old checkpoints depend on, and the names of language tags."""

import re

BOS, PAD, EOS, UNK = 0, 1, 2, 3
FIRST_TAG = 4


def tag_of(code: str) -> str:
    """Control symbol that asks for a target language, such as <2de>."""
    return f"<2{code}>"


def source_tag_of(tag: str) -> str:
    """Control symbol that says where a training source comes from, such as <bt> for bt. Raises ValueError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", tag) or tag in ("s", "pad", "unk"):
        raise ValueError(f"tag {tag!r} of a source cannot be a symbol; choose letters other than s, pad and unk, as bt")
    return f"<{tag}>"
