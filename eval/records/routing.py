"""Routing of a run: which languages use which experts of each MoE layer, from routing.json and metrics.jsonl.

P pairs, E experts. Experts are counted from 0.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.records.run_record import Json, load_events
from eval.records.scores import write_csv
from eval.records.specialisation import VALUES, LayerSpecialisation

ROUTING = "routing.json"
DEAD = 0.1  # an expert is dead if no pair gives it more than this part of a uniform share
LAST = 0.1  # the mean over this last part of the training records stands for the end of training
EXPERT_COLUMNS = ("run", "layer", "pair", "expert", "share", "weight")
LAYER_COLUMNS = (
    "run",
    "layer",
    "experts",
    "load_max",
    "load_min",
    "load_entropy",
    "load_cv",
    "importance_cv",
    "dead",
    "unused",
    "drop_rate",
    "unserved",
    "router_entropy",
    *(f"explained_by_{value}" for value in VALUES),
)
OF_TRAINING = ("drop_rate", "unserved", "entropy")  # the columns before those of specialisation
DISTANCE_COLUMNS = ("run", "pair", "other", "distance")

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LayerUse:
    """Use of one MoE layer's experts on the development sets.

    tokens_P: real tokens, padding not counted.
    chosen_PE: tokens that choose each expert.
    weight_PE: sums of the combine weights of these tokens.
    """

    name: str
    tokens_P: Array
    chosen_PE: Array
    weight_PE: Array

    @property
    def num_experts(self) -> int:
        return int(self.chosen_PE.shape[1])

    @property
    def use_PE(self) -> Array:
        """Share of a pair's choices that go to each expert. A row sums to one, or is zero if the pair has no choice."""
        sums_P1: Array = np.maximum(self.chosen_PE.sum(axis=1, keepdims=True), 1.0)
        return self.chosen_PE / sums_P1

    @property
    def relative_PE(self) -> Array:
        """Share of a pair's choices that go to each expert, over a uniform share: all 1 if experts are used equally."""
        return self.use_PE * self.num_experts

    @property
    def load_E(self) -> Array:
        """Tokens of all pairs that choose each expert, over the mean of all experts."""
        load_E: Array = self.chosen_PE.sum(axis=0)
        return load_E / max(float(load_E.mean()), 1e-9)

    @property
    def load_entropy(self) -> float:
        """Entropy of the distribution of choices over experts, in nats. An even load gives ln E."""
        share_E = self.load_E / self.num_experts
        return float(-(share_E * np.log(np.where(share_E > 0, share_E, 1.0))).sum())

    @property
    def load_cv(self) -> float:
        """Coefficient of variation of the number of tokens that choose each expert (Shazeer et al., Table 6)."""
        return _variation(self.chosen_PE.sum(axis=0))

    @property
    def importance_cv(self) -> float:
        """Coefficient of variation of the sum of each expert's combine weights (Shazeer et al., Table 6)."""
        return _variation(self.weight_PE.sum(axis=0))

    @property
    def dead(self) -> list[int]:
        """Experts that some tokens choose, but to which no pair gives a tenth of a uniform share."""
        most_E = self.relative_PE.max(axis=0)
        return np.flatnonzero((most_E < DEAD) & (most_E > 0)).tolist()

    @property
    def unused(self) -> list[int]:
        """Experts that no token of any pair chooses."""
        return np.flatnonzero(self.chosen_PE.sum(axis=0) == 0).tolist()


@dataclass(frozen=True, kw_only=True)
class LayerTraining:
    """Routing of one layer in training, one value a training record.

    tokens: target tokens seen until the record.
    entropy: entropy of the router, in nats.
    drop_rate: share of the choices that were lost because the expert was full.
    unserved: share of the tokens that no expert served.
    """

    tokens: tuple[int, ...]
    entropy: tuple[float, ...]
    drop_rate: tuple[float, ...]
    unserved: tuple[float, ...]

    def at_end(self, key: str) -> float:
        """Return the mean of a field over the last tenth of the records."""
        return _at_end(getattr(self, key))


def load_routing(run_dir: Path, pairs: Sequence[str]) -> list[LayerUse]:
    """Read the layers in routing.json, with the pairs in the given order; none if the run has no such file.

    Raises ValueError for a file that cannot be read.
    """
    path = run_dir / ROUTING
    if not path.is_file():
        return []
    try:
        layers: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["layers"]
        return [
            LayerUse(
                name=name,
                tokens_P=np.array([counts[pair]["tokens"] for pair in pairs], dtype=np.float64),
                chosen_PE=np.array([counts[pair]["chosen"] for pair in pairs], dtype=np.float64),
                weight_PE=np.array([counts[pair]["weight"] for pair in pairs], dtype=np.float64),
            )
            for name, counts in layers.items()
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error!r}); remove the run's directory and run it again") from error


def load_training(run_dir: Path) -> tuple[dict[str, LayerTraining], float]:
    """Read from metrics.jsonl the training of each layer, and the mean number of experts that serve a token at its end.

    Both are empty (no layers, 0) if the run did not record its routing.
    """
    records = [record for record in load_events(run_dir, "train") if record.get("layers")]
    if not records:
        return {}, 0.0
    try:
        layers = {name: _training_of(name, records) for name in records[-1]["layers"]}
        served = [float(record["experts_per_token"]) for record in records]
    except KeyError as error:
        raise ValueError(f"{run_dir / 'metrics.jsonl'} lacks {error} in a record `train`; publish it again") from error
    return layers, _at_end(served)


def _training_of(layer: str, records: Sequence[Json]) -> LayerTraining:
    values = {key: tuple(float(record["layers"][layer][key]) for record in records) for key in OF_TRAINING}
    return LayerTraining(tokens=tuple(int(record["target_tokens"]) for record in records), **values)


def _at_end(values: Sequence[float]) -> float:
    return float(np.mean(values[-max(1, round(LAST * len(values))) :]))


def distances(layers: Sequence[LayerUse]) -> Array:
    """Return the Jensen-Shannon distance [P, P] of pairs by the experts that they use.

    It is the square root of the divergence (base 2) of two pairs' distributions over the experts of a layer; the
    divergence is the mean over layers. 0 is equal use, 1 is no expert in common.
    """
    divergence_PP: Array = np.mean([_divergence(layer.use_PE) for layer in layers], axis=0)
    distance_PP: Array = np.sqrt(np.clip(divergence_PP, 0.0, 1.0))
    return distance_PP


def _divergence(use_PE: Array) -> Array:
    entropy_P = _entropy(use_PE)
    rows = [
        _entropy((use_PE + use_E) / 2) - (entropy_P + entropy) / 2
        for use_E, entropy in zip(use_PE, entropy_P, strict=True)
    ]
    divergence_PP = np.array(rows)
    np.fill_diagonal(divergence_PP, 0.0)
    return divergence_PP


def _entropy(use_PE: Array) -> Array:
    logs_PE = np.log2(np.where(use_PE > 0, use_PE, 1.0))
    entropy_P: Array = -(use_PE * logs_PE).sum(axis=1)
    return entropy_P


def _variation(total_E: Array) -> float:
    """Return the standard deviation over the mean."""
    return float(total_E.std() / max(float(total_E.mean()), 1e-9))


def save_experts(path: Path, rows: Mapping[str, tuple[Sequence[str], Sequence[LayerUse]]]) -> None:
    """Write routing.csv, one line a run, layer, pair and expert.

    rows: (pairs, layers) by run. The column `share` is the share of the pair's tokens that choose the expert, and
        `weight` the mean combine weight over all tokens of the pair.
    """
    cells = [
        (run, layer.name, pair, str(expert), f"{chosen / tokens:.6f}", f"{weight / tokens:.6f}")
        for run, (pairs, layers) in rows.items()
        for layer in layers
        for pair, tokens, chosen_E, weight_E in zip(
            pairs, np.maximum(layer.tokens_P, 1), layer.chosen_PE, layer.weight_PE, strict=True
        )
        for expert, (chosen, weight) in enumerate(zip(chosen_E, weight_E, strict=True))
    ]
    write_csv(path, EXPERT_COLUMNS, cells)


def save_layers(
    path: Path, rows: Sequence[tuple[str, LayerUse, LayerTraining | None, LayerSpecialisation | None]]
) -> None:
    """Write routing_layers.csv. Dead and unused experts are given by their numbers, separated by spaces."""
    cells = [
        (
            run,
            layer.name,
            str(layer.num_experts),
            *(f"{value:.4f}" for value in (layer.load_E.max(), layer.load_E.min())),
            *(f"{value:.4f}" for value in (layer.load_entropy, layer.load_cv, layer.importance_cv)),
            " ".join(map(str, layer.dead)),
            " ".join(map(str, layer.unused)),
            *("" if training is None else f"{training.at_end(key):.4f}" for key in OF_TRAINING),
            *("" if special is None else f"{special.information[value]:.4f}" for value in VALUES),
        )
        for run, layer, training, special in rows
    ]
    write_csv(path, LAYER_COLUMNS, cells)


def save_distances(path: Path, rows: Mapping[str, tuple[Sequence[str], Array]]) -> None:
    """Write routing_distances.csv, with every two pairs of a run once."""
    cells = [
        (run, pair, other, f"{distance_PP[i, j]:.4f}")
        for run, (pairs, distance_PP) in rows.items()
        for i, pair in enumerate(pairs)
        for j, other in enumerate(pairs[:i])
    ]
    write_csv(path, DISTANCE_COLUMNS, cells)
