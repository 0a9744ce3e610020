"""Rows of comparisons for people to read."""

from pipeline.verify.comparison import QUANTITIES, Deviation, Row

CASE_HEADS = ("world", "ep", "ZeRO", "accum.", "precision", "gate")
CASE_WIDTHS = (6, 4, 6, 8, 15, 14)
WIDTH = 10


def heading(steps: int) -> str:
    """Two lines above the columns."""
    left = "".join(head.ljust(width) for head, width in zip(CASE_HEADS, CASE_WIDTHS, strict=True))
    heads = "".join(quantity.head.rjust(WIDTH) for quantity in QUANTITIES)
    spans = "at step 1".rjust(3 * WIDTH) + f"over {steps} steps".rjust(3 * WIDTH)
    return f"{' ' * len(left)}{spans}\n{left}{heads}{'moved':>{WIDTH}}"


def line(row: Row) -> str:
    """moved: share of the routed tokens."""
    left = "".join(cell.ljust(width) for cell, width in zip(row.cells, CASE_WIDTHS, strict=True))
    values = "".join(cell(row.deviations[quantity.key]).rjust(WIDTH) for quantity in QUANTITIES)
    moved = f"{100 * row.moved / row.tokens:.2f} %" if row.moved else "0"
    return f"{left}{values}{moved:>{WIDTH}}  {'FAIL' if row.failed else 'ok'}"


def cell(deviation: Deviation) -> str:
    """In brackets where there is no bound, with a mark where it is passed."""
    value = f"{deviation.value:.0e}" if deviation.value else "0"
    if deviation.bound is None:
        return f"({value})"
    return f"{value} !" if deviation.failed else value
