"""Names that are spelled like a wrong one, for error messages."""

import difflib
from collections.abc import Iterable


def nearest_names(name: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the known names that are most like `name`, best first.

    most: names that are returned at most.
    cutoff: least similarity, from 0 to 1 (`difflib.SequenceMatcher.ratio`).
    """
    return difflib.get_close_matches(name, list(names), n=most, cutoff=cutoff)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?` with the nearest known names, or an empty text if none is near."""
    nearest = nearest_names(name, names)
    return f"; did you mean {' or '.join(nearest)}?" if nearest else ""


def suggestion(name: str, names: Iterable[str], *, listing: str = "there are") -> str:
    """Return `; did you mean X?` with the nearest known names, or a list of all of them after the word `listing`."""
    choices = list(names)
    return did_you_mean(name, choices) or f"; {listing} {', '.join(choices) or 'none'}"
