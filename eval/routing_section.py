"""The part of the report on routing: which languages use which experts, how evenly, and what training did to it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from eval.clustering import leaf_order
from eval.figure_style import inline_svg, save_figure
from eval.language import pair_labels
from eval.number_format import MISSING, decimal, share
from eval.results import RunResults
from eval.routing import (
    LayerTraining,
    LayerUse,
    distances,
    load_routing,
    load_training,
    save_distances,
    save_experts,
    save_layers,
)
from eval.routing_plots import plot_experts, plot_similarity, plot_training

LAYER_HEADS = (
    "Layer",
    "Busiest expert",
    "Idlest expert",
    "Load entropy",
    "Router entropy",
    "Choices lost",
    "Tokens unserved",
    "Dead experts",
    "Never chosen",
)
RUN_HEADS = (
    "Run",
    "Experts",
    "MoE layers",
    "Busiest expert",
    "Least load entropy",
    "Choices lost",
    "Tokens unserved",
    "Experts a token",
    "Dead experts",
    "Never chosen",
)
_NAMED = 6  # experts of a cell that are named; the others are counted


@dataclass(frozen=True, kw_only=True)
class RunRouting:
    """One run. pairs: in decreasing order of training data. served: experts that serve a token at the end of
    training, 0 where not recorded."""

    label: str
    pairs: tuple[str, ...]
    labels: tuple[str, ...]
    layers: tuple[LayerUse, ...]
    training: Mapping[str, LayerTraining]
    served: float
    distance_PP: NDArray[np.float64]

    @classmethod
    def of(cls, run: RunResults) -> "RunRouting | None":
        """None where the run has no routing.json."""
        pairs = run.record.pairs_by_resource
        layers = load_routing(run.directory, pairs)
        if not layers:
            return None
        training, served = load_training(run.directory)
        labels = pair_labels(pairs, run.record.languages)
        return cls(
            label=run.label,
            pairs=pairs,
            labels=tuple(labels[pair] for pair in pairs),
            layers=tuple(layers),
            training=training,
            served=served,
            distance_PP=distances(layers),
        )


def routing_section(out: Path, runs: Sequence[RunResults]) -> Mapping[str, Any] | None:
    """What `routing_section.html.j2` shows as `routing`, None without a MoE run; writes routing.csv,
    routing_layers.csv, routing_distances.csv and the figures into `out`.

    runs: (label, figures, sentence on distances, rows of layers). missing: MoE runs whose routing was not recorded.
    """
    asked = [run for run in runs if run.is_moe]
    if not asked:
        return None
    read = [(run, RunRouting.of(run)) for run in asked]
    found = [each for _, each in read if each is not None]
    if found:
        save_experts(out / "routing.csv", {each.label: (each.pairs, each.layers) for each in found})
        rows = [(each.label, layer, each.training.get(layer.name)) for each in found for layer in each.layers]
        save_layers(out / "routing_layers.csv", rows)
        save_distances(out / "routing_distances.csv", {each.label: (each.pairs, each.distance_PP) for each in found})
    stems = _stems([each.label for each in found])
    return {
        "runs": [
            {
                "label": each.label,
                "figures": _figures(out, each, stem),
                "nearest": _nearest(each),
                "rows": [_layer_cells(layer, each.training.get(layer.name)) for layer in each.layers],
            }
            for each, stem in zip(found, stems, strict=True)
        ],
        "layer_heads": LAYER_HEADS,
        "overview": [_run_cells(each) for each in found] if len(found) > 1 else [],
        "run_heads": RUN_HEADS,
        "missing": [run.label for run, each in read if each is None],
    }


def _stems(labels: Sequence[str]) -> list[str]:
    """What the files of each run begin with."""
    if len(labels) == 1:
        return ["routing"]
    stems: list[str] = []
    for label in labels:
        stem = f"routing_{re.sub(r'[^A-Za-z0-9_.-]+', '-', label)}"
        while stem in stems:
            stem += "_"
        stems.append(stem)
    return stems


def _figures(out: Path, run: RunRouting, stem: str) -> dict[str, list[Markup]]:
    """Drawn, saved, and as elements of the page: `experts` in one or several, `similarity` of two pairs or more,
    `training` where it was recorded."""
    order = leaf_order(run.distance_PP)
    experts = plot_experts(run.layers, run.labels, order)
    names = [f"{stem}_experts", *(f"{stem}_experts_{number}" for number in range(2, len(experts) + 1))]
    busiest = "; ".join(f"{layer.name}: {_busiest(layer)}" for layer in run.layers)
    figures = {
        "experts": [
            _saved(out, name, figure, f"Use of each expert by each language. Busiest expert of {busiest}")
            for name, figure in zip(names, experts, strict=True)
        ],
        "similarity": [],
        "training": [],
    }
    if len(run.pairs) > 1:
        figure = plot_similarity(run.distance_PP, run.labels, order)
        description = "Languages by how alike they use experts, in order: " + ", ".join(run.labels[i] for i in order)
        figures["similarity"] = [_saved(out, f"{stem}_similarity", figure, description)]
    if run.training:
        figure = plot_training(run.training, run.layers[0].num_experts)
        description = "Router entropy, choices lost and tokens unserved by layer, against target tokens seen"
        figures["training"] = [_saved(out, f"{stem}_training", figure, description)]
    return figures


def _saved(out: Path, name: str, figure: Figure, description: str) -> Markup:
    save_figure(figure, out / name)
    return Markup(inline_svg(figure, name, escape(description, quote=True)))


def _nearest(run: RunRouting) -> str:
    """The two pairs that are most alike and the two that are least, as a sentence."""
    if len(run.pairs) < 3:
        return ""
    cells = [
        (float(run.distance_PP[i, j]), run.labels[j], run.labels[i]) for i in range(len(run.pairs)) for j in range(i)
    ]
    low, high = min(cells), max(cells)
    return (
        f"Nearest are {low[1]} and {low[2]} ({decimal(low[0], 3)}), farthest {high[1]} and {high[2]} "
        f"({decimal(high[0], 3)})."
    )


def _busiest(layer: LayerUse) -> str:
    return f"{decimal(float(layer.load_E.max()), 2)}× ({int(layer.load_E.argmax())})"


def _layer_cells(layer: LayerUse, training: LayerTraining | None) -> list[str]:
    """Cells of LAYER_HEADS."""
    even = decimal(float(np.log(layer.num_experts)), 2)
    return [
        layer.name,
        _busiest(layer),
        f"{decimal(float(layer.load_E.min()), 2)}× ({int(layer.load_E.argmin())})",
        f"{decimal(layer.load_entropy, 2)} of {even}",
        MISSING if training is None else f"{decimal(training.at_end('entropy'), 2)} of {even}",
        MISSING if training is None else share(training.at_end("drop_rate")),
        MISSING if training is None else share(training.at_end("unserved")),
        _experts(layer.dead),
        _experts(layer.unused),
    ]


def _run_cells(run: RunRouting) -> list[str]:
    """Cells of RUN_HEADS; the worst layer where layers differ, means over layers of what was lost."""
    busiest = max(run.layers, key=lambda layer: float(layer.load_E.max()))
    least = min(run.layers, key=lambda layer: layer.load_entropy)
    lost = {
        key: share(float(np.mean([layer.at_end(key) for layer in run.training.values()]))) if run.training else MISSING
        for key in ("drop_rate", "unserved")
    }
    return [
        run.label,
        str(run.layers[0].num_experts),
        str(len(run.layers)),
        f"{decimal(float(busiest.load_E.max()), 2)}× ({busiest.name})",
        f"{decimal(least.load_entropy, 2)} of {decimal(float(np.log(least.num_experts)), 2)} ({least.name})",
        lost["drop_rate"],
        lost["unserved"],
        decimal(run.served, 2) if run.served else MISSING,
        str(sum(len(layer.dead) for layer in run.layers)),
        str(sum(len(layer.unused) for layer in run.layers)),
    ]


def _experts(numbers: Sequence[int]) -> str:
    """How many, and which."""
    if not numbers:
        return "0"
    named = ", ".join(map(str, numbers[:_NAMED])) + (", …" if len(numbers) > _NAMED else "")
    return f"{len(numbers)}: {named}"
