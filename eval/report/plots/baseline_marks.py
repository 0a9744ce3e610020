"""Marks of the baselines in the figures of scores: which their budget cut off, and where their settings change."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from eval.records.ending import MARK, MEANING
from eval.report.plots.style import MUTED, compact_count

UNFINISHED_NOTE = f"\n{MARK} its baseline {MEANING}"  # below the label of an axis


def inner_boundaries(sizes: Sequence[int], boundaries: Sequence[int]) -> dict[int, int]:
    """Return the number of pairs above each boundary, of the boundaries that have pairs on both sides.

    sizes: training pairs of each language pair.
    boundaries: training pairs up to which baselines have other settings than above.
    """
    above = {boundary: sum(size > boundary for size in sizes) for boundary in boundaries}
    return {boundary: count for boundary, count in above.items() if 0 < count < len(sizes)}


def mark_boundaries(axes: Axes, places: Mapping[int, float], *, rising: bool) -> None:
    """Draw an upright line where the settings of the baselines change. Call this when the limits of x are final.

    places: x of each boundary.
    rising: training pairs rise from left to right.
    """
    if places:
        bottom, top = axes.get_ylim()
        room = 0.06 + 0.12 * len(places)  # for the texts above the points, each lower than the one before
        axes.set_ylim(bottom, max(top, 0.0) + room * (top - bottom))
    left, right = axes.transData.transform([(x, 0) for x in axes.get_xlim()])[:, 0]
    for number, (boundary, x) in enumerate(places.items()):
        axes.axvline(x, color=MUTED, linewidth=1.2, linestyle=(0, (2, 3)))
        on_the_left = axes.transData.transform((x, 0))[0] > (left + right) / 2
        begin, end = ("← ", "") if rising else ("", " →")
        axes.annotate(
            f"{begin}baselines of {compact_count(boundary)} pairs\nor fewer: other settings{end}",
            (x, 1),
            (-5 if on_the_left else 5, -2 - 24 * number),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="right" if on_the_left else "left",
            va="top",
            color=MUTED,
            fontsize=9,
        )
