"""How the languages of a run use the experts of each MoE layer: routing.json as numbers.

P pairs, E experts, L MoE layers. Experts are counted from 0.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.run_record import Json, load_events
from eval.scores import write_csv

ROUTING = "routing.json"
DEAD = 0.1  # of a uniform share: an expert that no pair uses more than this is dead
LAST = 0.1  # of the training records, whose mean stands for the end of training
EXPERT_COLUMNS = ("run", "layer", "pair", "expert", "share", "weight")
LAYER_COLUMNS = (
    "run",
    "layer",
    "experts",
    "load_max",
    "load_min",
    "load_entropy",
    "dead",
    "unused",
    "drop_rate",
    "unserved",
    "router_entropy",
)
OF_TRAINING = ("drop_rate", "unserved", "entropy")  # the last of these columns
DISTANCE_COLUMNS = ("run", "pair", "other", "distance")

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LayerUse:
    """One MoE layer on the development sets. tokens_P: real ones. chosen_PE: how many of them choose an expert.
    weight_PE: sums of the combine weights."""

    name: str
    tokens_P: Array
    chosen_PE: Array
    weight_PE: Array

    @property
    def num_experts(self) -> int:
        return int(self.chosen_PE.shape[1])

    @property
    def use_PE(self) -> Array:
        """Share of a pair's choices that go to each expert; rows sum to one, or are zero where nothing was chosen."""
        sums_P1: Array = np.maximum(self.chosen_PE.sum(axis=1, keepdims=True), 1.0)
        return self.chosen_PE / sums_P1

    @property
    def relative_PE(self) -> Array:
        """Share of a pair's tokens that choose an expert, in units of a uniform share: 1 where all are used alike."""
        return self.use_PE * self.num_experts

    @property
    def load_E(self) -> Array:
        """Tokens of all pairs that choose each expert, in units of a fair share."""
        load_E: Array = self.chosen_PE.sum(axis=0)
        return load_E / max(float(load_E.mean()), 1e-9)

    @property
    def load_entropy(self) -> float:
        """Of the distribution of choices over experts, in nats; ln E where the load is even."""
        share_E = self.load_E / self.num_experts
        return float(-(share_E * np.log(np.where(share_E > 0, share_E, 1.0))).sum())

    @property
    def dead(self) -> list[int]:
        """Experts that are chosen, but by less than a tenth of a uniform share of every pair's tokens."""
        most_E = self.relative_PE.max(axis=0)
        return np.flatnonzero((most_E < DEAD) & (most_E > 0)).tolist()

    @property
    def unused(self) -> list[int]:
        """Experts that no token of any pair chooses."""
        return np.flatnonzero(self.chosen_PE.sum(axis=0) == 0).tolist()


@dataclass(frozen=True, kw_only=True)
class LayerTraining:
    """What the router did in training, record by record. tokens: target tokens seen; entropy: of the router, in nats;
    drop_rate: choices lost to full experts; unserved: share of tokens without any expert."""

    tokens: tuple[int, ...]
    entropy: tuple[float, ...]
    drop_rate: tuple[float, ...]
    unserved: tuple[float, ...]

    def at_end(self, key: str) -> float:
        """Mean over the last tenth of the records."""
        return _at_end(getattr(self, key))


def load_routing(run_dir: Path, pairs: Sequence[str]) -> list[LayerUse]:
    """Read routing.json, the pairs in this order; empty where the run has none. Raises ValueError naming what is
    wrong with it."""
    path = run_dir / ROUTING
    if not path.is_file():
        return []
    try:
        layers: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["layers"]
        return [
            LayerUse(
                name=name,
                tokens_P=np.array([of[pair]["tokens"] for pair in pairs], dtype=np.float64),
                chosen_PE=np.array([of[pair]["chosen"] for pair in pairs], dtype=np.float64),
                weight_PE=np.array([of[pair]["weight"] for pair in pairs], dtype=np.float64),
            )
            for name, of in layers.items()
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error!r}); remove the run's directory and run it again") from error


def load_training(run_dir: Path) -> tuple[dict[str, LayerTraining], float]:
    """Of metrics.jsonl, by layer, and how many experts serve a token at the end of training; nothing and 0 where it
    does not say."""
    records = [record for record in load_events(run_dir, "train") if record.get("layers")]
    if not records:
        return {}, 0.0
    try:
        found = {name: _training_of(name, records) for name in records[-1]["layers"]}
        served = [float(record["experts_per_token"]) for record in records]
    except KeyError as error:
        raise ValueError(f"{run_dir / 'metrics.jsonl'} lacks {error} in a record `train`; publish it again") from error
    return found, _at_end(served)


def _training_of(layer: str, records: Sequence[Json]) -> LayerTraining:
    values = {key: tuple(float(record["layers"][layer][key]) for record in records) for key in OF_TRAINING}
    return LayerTraining(tokens=tuple(int(record["target_tokens"]) for record in records), **values)


def _at_end(values: Sequence[float]) -> float:
    return float(np.mean(values[-max(1, round(LAST * len(values))) :]))


def distances(layers: Sequence[LayerUse]) -> Array:
    """Jensen-Shannon distance [P, P] of pairs by the experts that they use: the square root of the divergence (base 2)
    of their distributions over a layer's experts, mean over layers. 0 is the same use, 1 no expert in common."""
    divergence_PP: Array = np.mean([_divergence(layer.use_PE) for layer in layers], axis=0)
    distance_PP: Array = np.sqrt(np.clip(divergence_PP, 0.0, 1.0))
    return distance_PP


def _divergence(use_PE: Array) -> Array:
    entropy_P = _entropy(use_PE)
    rows = [_entropy((use_PE + use_E) / 2) - (entropy_P + of) / 2 for use_E, of in zip(use_PE, entropy_P, strict=True)]
    divergence_PP = np.array(rows)
    np.fill_diagonal(divergence_PP, 0.0)
    return divergence_PP


def _entropy(use_PE: Array) -> Array:
    logs_PE = np.log2(np.where(use_PE > 0, use_PE, 1.0))
    entropy_P: Array = -(use_PE * logs_PE).sum(axis=1)
    return entropy_P


def save_experts(path: Path, rows: Mapping[str, tuple[Sequence[str], Sequence[LayerUse]]]) -> None:
    """routing.csv, of (pairs, layers) by run. share: of the pair's tokens that choose the expert; weight: its mean
    combine weight over them all."""
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


def save_layers(path: Path, rows: Sequence[tuple[str, LayerUse, LayerTraining | None]]) -> None:
    """routing_layers.csv; experts that are dead or unused by number, separated by spaces."""
    cells = [
        (
            run,
            layer.name,
            str(layer.num_experts),
            *(f"{value:.4f}" for value in (layer.load_E.max(), layer.load_E.min(), layer.load_entropy)),
            " ".join(map(str, layer.dead)),
            " ".join(map(str, layer.unused)),
            *("" if training is None else f"{training.at_end(key):.4f}" for key in OF_TRAINING),
        )
        for run, layer, training in rows
    ]
    write_csv(path, LAYER_COLUMNS, cells)


def save_distances(path: Path, rows: Mapping[str, tuple[Sequence[str], Array]]) -> None:
    """routing_distances.csv, each two pairs of a run once."""
    cells = [
        (run, pair, other, f"{distance_PP[i, j]:.4f}")
        for run, (pairs, distance_PP) in rows.items()
        for i, pair in enumerate(pairs)
        for j, other in enumerate(pairs[:i])
    ]
    write_csv(path, DISTANCE_COLUMNS, cells)
