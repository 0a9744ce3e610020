"""The style of all figures: colours for colour-blind readers, text that stays legible at half size, equal files."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Line = str | tuple[float, tuple[float, ...]]

INK = "#1f2328"
MUTED = "#59636e"
GRID = "#d8dee4"
# Okabe and Ito (2008), without yellow, which is too light for lines on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: tuple[Line, ...] = (
    "solid",
    (0, (6, 2)),
    (0, (1.2, 1.4)),
    (0, (7, 2, 1.2, 2)),
    (0, (2.6, 1.4)),
    (0, (7, 1.6, 1.2, 1.6, 1.2, 1.6)),
    (0, (11, 3)),
)


@dataclass(frozen=True, kw_only=True)
class SeriesStyle:
    """The colour, marker and line of a series. Marker and line tell series apart in a greyscale print too."""

    colour: str
    marker: str
    line: Line


# Any, because matplotlib 3.11 and later type the keys of its settings as literals of their own version.
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 11,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.fontsize": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.facecolor": "#ffffff",
    "axes.facecolor": "none",
    "text.parse_math": False,  # labels are names that users give; a dollar in them is a dollar
    "svg.fonttype": "none",
    "svg.hashsalt": "babelshard",
}
_PIXELS, _LARGEST = 0.9, 1.6  # least and most pixels of the page for a point of the figure, so that text is legible
# Names of the colours in the report's stylesheet, which has a light and a dark value for each.
CSS_COLOURS = {INK: "--ink", MUTED: "--muted", GRID: "--grid"}
CSS_COLOURS |= {colour: f"--series-{number}" for number, colour in enumerate(PALETTE)}


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a new figure and its axes, outside of pyplot's state. Sizes are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def series_style(number: int) -> SeriesStyle:
    """Return the style of a series by its number, from 0. Styles repeat after seven."""
    place = number % len(PALETTE)
    return SeriesStyle(colour=PALETTE[place], marker=MARKERS[place], line=LINES[place])


# The style of the bilingual baselines in every figure, which no system has.
BASELINE_STYLE = SeriesStyle(colour=MUTED, marker="x", line=(0, (4, 3)))


def compact_count(count: float) -> str:
    """Return a count with three digits at most: 1234 as 1.2k, 6000 as 6k, 2500000 as 2.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:
            scaled = count / size
            text = f"{scaled:.1f}" if scaled < 99.95 else f"{scaled:.0f}"
            return text.removesuffix(".0") + letter
    return f"{count:.0f}"


def save_figure(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "svg")) -> None:
    """Write <stem>.<format>: PNG at 200 dpi, SVG without date or random ids. Equal figures give equal files."""
    with mpl.rc_context(STYLE):
        for extension in formats:
            metadata = {"Software": None} if extension == "png" else {"Date": None, "Creator": None}
            path = stem.with_name(f"{stem.name}.{extension}")
            figure.savefig(path, dpi=200, metadata=metadata)


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """Return the figure as an <svg> element for HTML, with colours from the page's stylesheet.

    name: prefix of all ids.
    description: alternative text, already escaped for an attribute.
    """
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = text.replace("url(#", f"url(#{name}-")
    for colour, variable in CSS_COLOURS.items():
        text = text.replace(colour, f"var({variable})")
    width, height = figure.get_size_inches() * 72
    opening = f'<svg role="img" aria-label="{description}" viewBox="0 0 {width:g} {height:g}" '
    opening += f'style="min-width: {_PIXELS * width:.0f}px; max-width: {_LARGEST * width:.0f}px" '
    opening += 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    return opening + text[text.index(">") + 1 :].rstrip()
