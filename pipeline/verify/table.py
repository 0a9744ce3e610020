"""Format comparisons as a table for people."""

from pipeline.verify.comparison import QUANTITIES, Deviation, Row

CASE_HEADS = ("world", "mesh", "layout", "ZeRO", "accum.", "precision", "gate")
CASE_WIDTHS = (6, 7, 8, 5, 7, 15, 15)
WIDTH = 10


def heading(steps: int, short: int) -> str:
    """Return the lines above the columns."""
    left = "".join(head.ljust(width) for head, width in zip(CASE_HEADS, CASE_WIDTHS, strict=True))
    heads = "".join(quantity.head.rjust(WIDTH) for quantity in QUANTITIES)
    number = f"over {steps} steps" + f" ({short})" * (short < steps)
    return f"{' ' * len(left)}{_spans('at step 1', number)}\n{left}{heads}{'moved':>{WIDTH}}"


def resumed_heading(first: int, last: int) -> str:
    """Return the line above the rows of resumed runs. first, last: their steps."""
    left = f"from the checkpoints of step {first - 1} of every other topology".ljust(sum(CASE_WIDTHS))
    return left + _spans(f"at step {first}", f"over steps {first} to {last}")


def _spans(first: str, all_steps: str) -> str:
    return first.rjust(3 * WIDTH) + all_steps.rjust(3 * WIDTH)


def line(row: Row) -> str:
    """Return a row as a line. Its last number is the share of routed tokens that moved to other experts."""
    left = "".join(cell.ljust(width) for cell, width in zip(row.cells, CASE_WIDTHS, strict=True))
    values = "".join(cell(row.deviations[quantity.key]).rjust(WIDTH) for quantity in QUANTITIES)
    moved = f"{100 * row.moved / row.tokens:.2f} %" if row.moved else "0"
    return f"{left}{values}{moved:>{WIDTH}}  {'FAIL' if row.failed else 'ok'}"


def cell(deviation: Deviation) -> str:
    """Return a deviation as text: in brackets if it has no bound, with a mark if it is beyond its bound."""
    value = f"{deviation.value:.0e}" if deviation.value else "0"
    if deviation.bound is None:
        return f"({value})"
    return f"{value} !" if deviation.failed else value
