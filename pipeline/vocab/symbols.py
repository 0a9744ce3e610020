"""Ids of the special symbols, on which exports and old checkpoints depend, and the names of tags."""

import re

BOS, PAD, EOS, UNK = 0, 1, 2, 3
FIRST_TAG = 4


def tag_of(code: str) -> str:
    """Return the control symbol that requests a target language, such as <2de>."""
    return f"<2{code}>"


def source_tag_of(tag: str) -> str:
    """Return the control symbol of a training source, such as <bt> for bt. Raises ValueError for an illegal tag."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", tag) or tag in ("s", "pad", "unk"):
        raise ValueError(f"tag {tag!r} of a source cannot be a symbol; choose letters other than s, pad and unk, as bt")
    return f"<{tag}>"


def filler_of(index: int) -> str:
    """Return the control symbol for a row of an imported embedding that has no token."""
    return f"<filler {index}>"


def is_filler(symbol: str) -> bool:
    """Return whether a symbol is one of `filler_of`."""
    return bool(re.fullmatch(r"<filler \d+>", symbol))
