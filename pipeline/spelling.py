"""Names that are spelled like a wrong one, for error messages."""

import difflib
from collections.abc import Iterable


def nearest_names(name: str, known: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the known names that are most like `name`, best first.

    most: names that are returned at most.
    cutoff: least similarity, from 0 to 1 (`difflib.SequenceMatcher.ratio`).
    """
    return difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` with the nearest known names, or an empty text if none is near."""
    names = nearest_names(name, known)
    return f"; did you mean {' or '.join(names)}?" if names else ""


def suggestion(name: str, known: Iterable[str], *, listing: str = "there are") -> str:
    """Return `; did you mean X?` with the nearest known names, or a list of all of them after the word `listing`."""
    names = list(known)
    return did_you_mean(name, names) or f"; {listing} {', '.join(names) or 'none'}"
