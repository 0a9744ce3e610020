"""Placement of labels beside marks and lines, so that they cover neither each other nor the marks."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

# Offsets (dx, dy) of a label in points, with its alignment, in the order of preference. A positive dy counts from the
# top of the labelled range, a negative one from its bottom.
_CANDIDATES: tuple[tuple[float, float, str, str], ...] = (
    (0, 3, "center", "bottom"),
    (0, -3, "center", "top"),
    (5, 1, "left", "bottom"),
    (-5, 1, "right", "bottom"),
    (5, -1, "left", "top"),
    (-5, -1, "right", "top"),
    (0, 15, "center", "bottom"),
    (0, -15, "center", "top"),
    (0, 27, "center", "bottom"),
    (0, -27, "center", "top"),
)

_BESIDE = 0.1  # lines that end within this share of the axes' width have their labels in one column


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move positions apart as little as possible, so that neighbours are at least `gap` apart and keep their order.

    This is isotonic regression by pooling: stacks that touch are merged and centred on the mean of their members.
    """
    order = sorted(range(len(positions)), key=lambda i: (positions[i], i))
    stacks: list[tuple[float, int]] = []  # (mean of position minus its offset in the stack, members)
    for rank, i in enumerate(order):
        start, size = positions[i] - rank * gap, 1
        while stacks and stacks[-1][0] > start:
            previous, members = stacks.pop()
            start = (previous * members + start * size) / (members + size)
            size += members
        stacks.append((start, size))
    starts = [start for start, members in stacks for _ in range(members)]
    placed = [0.0] * len(positions)
    for rank, i in enumerate(order):
        placed[i] = starts[rank] + rank * gap
    return placed


def label_line_ends(
    figure: Figure, axes: Axes, ends: Sequence[tuple[float, float, str, str]], ink: str, size: float = 10
) -> None:
    """Write labels to the right of the ends of lines, with a thin line from each label to its end.

    Labels of lines that end close together are moved apart. Lines that end near the right edge are labelled beyond it.
    Call this when the limits of the axes are final.

    ends: (x, y, text, colour) of each line.
    ink: colour of the text.
    size: font size in points.
    """
    if not ends:
        return
    figure.draw_without_rendering()
    frame = axes.get_window_extent()
    bottom, top = axes.get_ylim()
    gap = 1.25 * size * (top - bottom) / (frame.height * 72 / figure.dpi)
    groups: list[list[tuple[float, float, str, str]]] = []  # from left to right; x as a share of the width
    for x, *end in sorted(ends):
        place = (float(axes.transData.transform((x, 0))[0]) - frame.x0) / frame.width
        near_edge = bool(groups) and groups[-1][-1][0] > 1 - _BESIDE  # all further labels are beyond the edge too
        if not groups or (place - groups[-1][0][0] > _BESIDE and not near_edge):
            groups.append([])
        groups[-1].append((place, *end))
    for group in groups:
        right = max(place for place, *_ in group)
        column = max(right, 1.0) + 0.02 if right > 1 - _BESIDE else right + 0.02
        for (place, y, text, colour), height in zip(group, spread([y for _, y, *_ in group], gap), strict=True):
            axes.annotate(
                text,
                (place, y),
                (column, height),
                xycoords=axes.get_yaxis_transform(),
                textcoords=axes.get_yaxis_transform(),
                va="center",
                fontsize=size,
                color=ink,
                arrowprops={
                    "arrowstyle": "-",
                    "color": colour,
                    "linewidth": 1.0,
                    "relpos": (0, 0.5),
                    "shrinkA": 1,
                    "shrinkB": 2,
                },
            )


def label_columns(
    figure: Figure, axes: Axes, columns: Sequence[tuple[float, str]], ink: str, line: str, size: float = 9.5
) -> None:
    """Write labels upright above the axes, with a thin line from each label to its place.

    Labels of close columns are moved apart. Call this when limits and scale of the axes are final.

    columns: (x, text) of each label.
    ink, line: colours of the text and of the thin line.
    size: font size in points.
    """
    figure.draw_without_rendering()
    frame = axes.get_window_extent()
    starts = [float(axes.transData.transform((x, 0))[0] - frame.x0) / frame.width for x, _ in columns]
    places = spread(starts, 1.25 * size * figure.dpi / 72 / frame.width)
    for (_, text), start, place in zip(columns, starts, places, strict=True):
        axes.annotate(
            text,
            (start, 1),
            (place, 1.05),
            xycoords="axes fraction",
            textcoords="axes fraction",
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=size,
            color=ink,
            arrowprops={
                "arrowstyle": "-",
                "color": line,
                "linewidth": 0.8,
                "relpos": (0.5, 0),
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )


def label_ranges(
    figure: Figure,
    axes: Axes,
    ranges: Sequence[tuple[float, float, float, str]],
    avoid: Sequence[tuple[float, float]],
    colour: str,
) -> None:
    """Write labels above or below vertical ranges, each at the first free of several offsets.

    A label that fits nowhere gets the least crowded place. Call this when limits and scales of the axes are final.

    ranges: (x, bottom, top, text) of each label.
    avoid: points (x, y) of marks, which labels must not cover.
    """
    figure.draw_without_rendering()
    scale = figure.dpi / 72
    frame = axes.get_window_extent()
    marks = [_mark_box(axes, x, y, scale) for x, y in avoid]
    placed: list[Bbox] = []
    size = 11 if len(ranges) <= 16 else 8.5
    for x, bottom, top, text in ranges:
        attempts: list[tuple[int, Annotation, Bbox]] = []
        for dx, dy, horizontal, vertical in _CANDIDATES:
            anchor = (x, top if dy > 0 else bottom)
            label = axes.annotate(
                text,
                anchor,
                (dx, dy),
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
                color=colour,
                fontsize=size,
            )
            label.set_in_layout(False)
            box = label.get_window_extent()
            inside = frame.contains(box.x0, box.y0) and frame.contains(box.x1, box.y1)
            cost = 0 if inside else 4
            cost += sum(2 for placed_box in placed if box.overlaps(placed_box)) + sum(map(box.overlaps, marks))
            attempts.append((cost, label, box))
            if cost == 0:
                break
        best = min(attempts, key=lambda attempt: attempt[0])
        for attempt in attempts:
            if attempt is not best:
                attempt[1].remove()
        placed.append(best[2].padded(2 * scale))


def _mark_box(axes: Axes, x: float, y: float, scale: float) -> Bbox:
    centre_x, centre_y = axes.transData.transform((x, y))
    half = 2.5 * scale
    return Bbox.from_extents(centre_x - half, centre_y - half, centre_x + half, centre_y + half)
