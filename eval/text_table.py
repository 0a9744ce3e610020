"""Tables for a terminal."""

from collections.abc import Collection, Sequence

from tabulate import tabulate


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] | None = (0,)) -> str:
    """Return the rows as lines of text, with two spaces between the columns.

    left: numbers of the columns whose cells begin at the same place, None for all of them; the other columns are
        numbers, whose cells end at the same place.
    """
    sides = ["left" if left is None or column in left else "right" for column in range(len(rows[0]))]
    text: str = tabulate(rows, tablefmt="plain", colalign=sides, disable_numparse=True, preserve_whitespace=True)
    return text
