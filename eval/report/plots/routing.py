"""The figures of routing: use of experts by language, similarity of languages, and the routers in training.

P pairs, E experts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from eval.records.routing import LayerTraining, LayerUse
from eval.report.plots.clustering import average_linkage
from eval.report.plots.style import MARKERS, MUTED, PALETTE, STYLE, compact_count

COLOURS = "viridis"  # its lightness changes evenly, so it works without colour too
WIDTH = 8.8  # inches
_REACHES = (1.5, 2.0, 3.0, 5.0, 10.0)  # the scale of use goes from 1/reach to reach times a uniform share
_INSIDE = 0.95  # share of the cells that the scale must cover
_PAGE = 10.0  # greatest height of a figure in inches
_NUMBERED = 48  # layers with more experts have no numbers beside the rows
_ALL = "all"

Array = NDArray[np.float64]


def plot_experts(layers: Sequence[LayerUse], labels: Sequence[str], order: Sequence[int]) -> list[Figure]:
    """Draw a heatmap for each layer, with the encoder's on the left.

    Columns are languages in the given order, then all together. Rows are experts, sorted by the languages that use
    them. Triangles mark dead and unused experts. If one figure would be longer than a page, several are returned, which
    have the same scale.
    """
    sides = [
        side_layers
        for side in ("encoder.", "decoder.")
        if (side_layers := [layer for layer in layers if layer.name.startswith(side)])
    ]
    rows = [[side[row] if row < len(side) else None for side in sides] for row in range(max(map(len, sides)))]
    height = _height(layers[0].num_experts)
    at_once = max(1, int(_PAGE / height))
    reach = _reach(layers)
    return [
        _experts(rows[start : start + at_once], labels, order, height, reach) for start in range(0, len(rows), at_once)
    ]


def _experts(
    rows: Sequence[Sequence[LayerUse | None]], labels: Sequence[str], order: Sequence[int], height: float, reach: float
) -> Figure:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height * len(rows) + 0.9), layout="constrained")
        grid = figure.add_gridspec(len(rows), len(rows[0]))
        for place, layers in enumerate(rows):
            for column, layer in enumerate(layers):
                if layer is not None:
                    axes = figure.add_subplot(grid[place, column])
                    image = _draw_layer(axes, layer, labels, order, reach=reach, narrow=len(layers) > 1)
        bar = figure.colorbar(
            image,
            ax=figure.axes,
            location="bottom",
            shrink=0.6,
            aspect=40,
            pad=0.02,
            extend="both",
            ticks=[1 / reach, 1 / reach**0.5, 1.0, reach**0.5, reach],
            format=FuncFormatter(lambda value, _: f"{value:.2g}×"),
        )
        bar.ax.xaxis.set_minor_locator(NullLocator())
        bar.set_label("share of a language’s tokens that choose the expert, in units of a uniform share")
    return figure


def _reach(layers: Sequence[LayerUse]) -> float:
    far = np.concatenate([np.abs(np.log(np.maximum(layer.relative_PE, 1e-9))).ravel() for layer in layers])
    needed = float(np.exp(np.quantile(far, _INSIDE)))
    return next((reach for reach in _REACHES if reach >= needed), _REACHES[-1])


def _height(num_experts: int) -> float:
    """Return the height in inches of a row of panels with its labels. Rows of experts are lower if there are many."""
    expert_height = 0.17 if num_experts <= _NUMBERED // 3 else 0.11 if num_experts <= _NUMBERED else 0.045
    return 0.85 + min(max(num_experts * expert_height, 0.6), 7.0)


def _draw_layer(
    axes: Axes, layer: LayerUse, labels: Sequence[str], order: Sequence[int], *, reach: float, narrow: bool
) -> mpl.image.AxesImage:
    relative_PE = layer.relative_PE[list(order)]
    place_P1 = np.arange(len(order))[:, None]
    pull_PE = relative_PE**2  # squares, so that the highest uses decide the place of an expert
    experts = np.argsort((pull_PE * place_P1).sum(axis=0) / np.maximum(pull_PE.sum(axis=0), 1e-9), kind="stable")
    norm, P, E = LogNorm(1 / reach, reach), len(order), layer.num_experts
    gap = 0.015 * P
    for values_EX, left in ((relative_PE.T, 0.0), (layer.load_E[:, None], P + gap)):
        image = axes.imshow(
            np.maximum(values_EX[experts], 1e-6),
            norm=norm,
            cmap=f"{COLOURS}_r",
            aspect="auto",
            interpolation="none",
            extent=(left - 0.5, left - 0.5 + values_EX.shape[1], E - 0.5, -0.5),
        )
    axes.set_xlim(-0.5, P + gap + 0.5)
    size = 10.0 if P <= 14 else 8.0 if not narrow else 6.4
    axes.set_xticks([*range(P), P + gap], [*(labels[place] for place in order), _ALL], fontsize=size, rotation=90)
    axes.tick_params(length=0, pad=2)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(layer.name, pad=4)
    axes.set_ylabel("expert" if E <= _NUMBERED else f"{E} experts", fontsize=9, color=MUTED)
    names = [str(expert) for expert in experts] if E <= _NUMBERED else []
    axes.set_yticks(range(len(names)), names, fontsize=8 if E <= _NUMBERED // 3 else 6.4)
    for place, expert in enumerate(experts):
        if expert in layer.dead or expert in layer.unused:
            axes.plot(P + gap + 0.75, place, "<", color=PALETTE[1], markersize=4, clip_on=False)
    return image


def plot_similarity(distance_PP: Array, labels: Sequence[str], order: Sequence[int]) -> Figure:
    """Draw the matrix of distances, with the dendrogram that gives its order. Dark cells are similar languages."""
    P = len(order)
    size = min(max(2.6, 0.19 * P), 7.0)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(WIDTH, size + 2.9), size + 0.9), layout="constrained")
        grid = figure.add_gridspec(1, 2, width_ratios=(min(max(1.3, WIDTH - size - 2.0), size), size), wspace=0.0)
        tree, axes = figure.add_subplot(grid[0]), figure.add_subplot(grid[1])
        image = axes.imshow(
            distance_PP[np.ix_(order, order)],
            cmap=COLOURS,
            vmin=0,
            vmax=max(float(distance_PP.max()), 1e-6),
            aspect="auto",
            interpolation="none",
        )
        names = [labels[place] for place in order]
        text = 10.0 if P <= 14 else 7.5
        axes.set_xticks(range(P), names, rotation=90, fontsize=text)
        axes.set_yticks(range(P), names, fontsize=text)
        axes.tick_params(length=0, pad=2)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        _draw_tree(tree, distance_PP, order)
        figure.colorbar(image, ax=axes, label="Jensen–Shannon distance", shrink=0.7, aspect=25)
    return figure


def _draw_tree(axes: Axes, distance_PP: Array, order: Sequence[int]) -> None:
    """Draw the dendrogram. Its leaves are on the right, beside the rows of the matrix, and heights grow to the left."""
    height = {frozenset((leaf,)): 0.0 for leaf in order}
    place = {leaf: float(index) for index, leaf in enumerate(order)}
    for merge in average_linkage(distance_PP):
        ends = [float(np.mean([place[leaf] for leaf in side])) for side in (merge.left, merge.right)]
        starts = [height[frozenset(side)] for side in (merge.left, merge.right)]
        axes.plot(
            [starts[0], merge.height, merge.height, starts[1]],
            [ends[0], ends[0], ends[1], ends[1]],
            color=MUTED,
            linewidth=1,
        )
        height[frozenset(merge.members)] = merge.height
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.invert_xaxis()
    axes.axis("off")


def plot_training(training: Mapping[str, LayerTraining], num_experts: int) -> Figure:
    """Draw router entropy, choices lost and tokens unserved against target tokens, with a line for each layer."""
    panels = (
        ("entropy", "Router entropy (nats)", 1.0),
        ("drop_rate", "Choices lost (%)", 100.0),
        ("unserved", "Tokens unserved (%)", 100.0),
    )
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
        all_axes = figure.subplots(1, len(panels))
        for axes, (key, title, scale) in zip(all_axes, panels, strict=True):
            for place, (name, layer) in enumerate(training.items()):
                values = scale * np.array(getattr(layer, key))
                axes.plot(layer.tokens, values, label=name, linewidth=1.6, **_line_style(name, place))
            axes.set_title(title, fontsize=11)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact_count(value)))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
        all_axes[0].axhline(np.log(num_experts), color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
        all_axes[0].annotate(
            f"ln {num_experts}: all alike",
            (1, np.log(num_experts)),
            (-2, 2),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color=MUTED,
            fontsize=9,
        )
        all_axes[0].set_ylim(0, 1.15 * np.log(num_experts))
        all_axes[1].set_xlabel("target tokens seen")
        figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(training), 6))
    return figure


def _line_style(name: str, place: int) -> Any:
    """Return the style of a layer's line: dashes for the decoder, and markers if colours repeat."""
    repeats, colour = divmod(place, len(PALETTE))
    marks = {"marker": MARKERS[repeats % len(MARKERS)], "markevery": 0.2, "markersize": 4} if repeats else {}
    return {"color": PALETTE[colour], "linestyle": "--" if name.startswith("decoder.") else "-", **marks}
