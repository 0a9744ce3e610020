"""The section on routing: which languages use which experts, how even the load is, and how the routers trained."""

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

from eval.language import pair_labels
from eval.number_format import MISSING, decimal, share
from eval.records.results import RunResults
from eval.records.routing import (
    LayerTraining,
    LayerUse,
    distances,
    load_routing,
    load_training,
    save_distances,
    save_experts,
    save_layers,
)
from eval.records.specialisation import LayerSpecialisation, load_specialisation, save_pieces
from eval.report.plots.clustering import leaf_order
from eval.report.plots.routing import plot_experts, plot_similarity, plot_training
from eval.report.plots.style import inline_svg, save_figure
from eval.report.sections.specialisation import EXPLAINED_HEADS, specialisation_values

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
_MOST_NAMED = 6  # experts of a cell that are named; the others are counted


@dataclass(frozen=True, kw_only=True)
class RunRouting:
    """Routing of one run.

    pairs: in decreasing order of training data.
    labels: labels of the pairs.
    training: routing in training by layer; empty if not recorded.
    served: mean number of experts that serve a token at the end of training, 0 if not recorded.
    distance_PP: distances of the pairs by their use of experts, 0 to 1.
    specialisation: by layer; empty if not recorded.
    languages: source and target of each pair.
    """

    label: str
    pairs: tuple[str, ...]
    labels: tuple[str, ...]
    layers: tuple[LayerUse, ...]
    training: Mapping[str, LayerTraining]
    served: float
    distance_PP: NDArray[np.float64]
    specialisation: Mapping[str, LayerSpecialisation]
    languages: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, run: RunResults) -> "RunRouting | None":
        """Read the routing of a run, or return None if the run has no routing.json."""
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
            specialisation={layer.name: layer for layer in load_specialisation(run.directory)},
            languages=run.record.languages,
        )


def routing_section(out: Path, runs: Sequence[RunResults]) -> Mapping[str, Any] | None:
    """Return the values of `routing_section.html.j2`, or None without a MoE run.

    Writes routing.csv, routing_layers.csv, routing_distances.csv, routing_pieces.csv and the figures into `out`. The
    value `missing` has the labels of MoE runs that do not have all records.
    """
    moe_runs = [run for run in runs if run.is_moe]
    if not moe_runs:
        return None
    by_run = [(run, RunRouting.of(run)) for run in moe_runs]
    routings = [routing for _, routing in by_run if routing is not None]
    if routings:
        save_experts(out / "routing.csv", {routing.label: (routing.pairs, routing.layers) for routing in routings})
        rows = [
            (routing.label, layer, routing.training.get(layer.name), routing.specialisation.get(layer.name))
            for routing in routings
            for layer in routing.layers
        ]
        save_pieces(out / "routing_pieces.csv", {r.label: [*r.specialisation.values()] for r in routings})
        save_layers(out / "routing_layers.csv", rows)
        distances_by_label = {routing.label: (routing.pairs, routing.distance_PP) for routing in routings}
        save_distances(out / "routing_distances.csv", distances_by_label)
    stems = _stems([routing.label for routing in routings])
    return {
        "runs": [
            {
                "label": routing.label,
                "figures": _figures(out, routing, stem),
                "nearest": _nearest(routing),
                "rows": [_layer_cells(layer, routing.training.get(layer.name)) for layer in routing.layers],
                **specialisation_values([*routing.specialisation.values()], routing.languages),
            }
            for routing, stem in zip(routings, stems, strict=True)
        ],
        "layer_heads": LAYER_HEADS,
        "explained_heads": EXPLAINED_HEADS,
        "overview": [_run_cells(routing) for routing in routings] if len(routings) > 1 else [],
        "run_heads": RUN_HEADS,
        "missing": [run.label for run, routing in by_run if routing is None or not routing.specialisation],
    }


def _stems(labels: Sequence[str]) -> list[str]:
    """Return the beginning of the file names of each run; no two runs have the same."""
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
    """Draw and save the figures of a run, and return them as elements of the page.

    `experts` has one figure or several, `similarity` one if the run has several pairs, `training` one if recorded.
    """
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
    """Return a sentence on the two pairs that are most alike and the two that are least."""
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
    """Return the cells below LAYER_HEADS."""
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
    """Return the cells below RUN_HEADS: the load of the worst layer, and means over layers of what was lost."""
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
    """Return the count of experts and their numbers: `2: 0, 5`."""
    if not numbers:
        return "0"
    names = ", ".join(map(str, numbers[:_MOST_NAMED])) + (", …" if len(numbers) > _MOST_NAMED else "")
    return f"{len(numbers)}: {names}"
