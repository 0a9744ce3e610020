"""The endless stream of training steps: temperature sampling over pairs, packed window by window.

A window draws a fixed number of sentence pairs, adds what the last window left over, and packs them into steps. It is a
function of (seed, window, cursors, leftovers), so the position of the stream is a small record, independent of the
number of processes, and resuming repacks at most one window.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.packing import Ints, Step, pack_steps


@dataclass(frozen=True, kw_only=True)
class PairLengths:
    """Token counts of one pair's training sentences, with tag and end: int arrays [n]."""

    source: npt.NDArray[Any]
    target: npt.NDArray[Any]


def temperature_weights(counts: Sequence[int], temperature: float) -> npt.NDArray[np.float64]:
    """Sampling probability of each pair: n^(1/T), normalised (T=1: proportional)."""
    weights: npt.NDArray[np.float64] = np.asarray(counts, dtype=np.float64) ** (1.0 / temperature)
    weights /= weights.sum()
    return weights


def fit_targets(config: BatchConfig, lengths: Sequence[PairLengths]) -> BatchConfig:
    """The same shapes, with every target of 0 set to the ratio of target to source tokens in the mixture.

    Rounded up to a multiple of 4 and no longer than the last shape's. Rows then fill on both sides at once.
    """
    weights = temperature_weights([len(pair.source) for pair in lengths], config.temperature)
    source = float(np.dot(weights, [pair.source.mean() for pair in lengths]))
    target = float(np.dot(weights, [pair.target.mean() for pair in lengths]))

    def fit(shape: GroupShape) -> GroupShape:
        length = math.ceil(shape.source * target / source / 4) * 4
        return shape if shape.target else replace(shape, target=min(length, config.max_target))

    return replace(config, shapes=[fit(shape) for shape in config.shapes])


class Mixture:
    """Iterate over `Step`s forever; `state()` and `restore()` give and take the position of the next one."""

    def __init__(self, config: BatchConfig, lengths: Sequence[PairLengths], *, seed: int) -> None:
        self.config, self.lengths, self.seed = config, lengths, seed
        self.weights = temperature_weights([len(pair.source) for pair in lengths], config.temperature)
        mean_target = float(np.dot(self.weights, [pair.target.mean() for pair in lengths]))
        step_tokens = config.groups_per_step * config.shapes[0].rows * config.shapes[0].target
        self.window_sentences = max(1, int(config.window_steps * step_tokens / mean_target))
        self._window = 0
        self._offset = 0
        self._cursors = [0] * len(lengths)
        self._leftover: Ints = np.zeros((0, 2), dtype=np.int64)

    def state(self) -> dict[str, Any]:
        """Position of the next step, JSON-serialisable."""
        return {
            "window": self._window,
            "offset": self._offset,
            "cursors": list(self._cursors),
            "leftover": self._leftover.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        if len(state["cursors"]) != len(self.lengths):
            raise ValueError(f"saved position has {len(state['cursors'])} pairs, this run has {len(self.lengths)}")
        self._window, self._offset = state["window"], state["offset"]
        self._cursors = list(state["cursors"])
        self._leftover = np.asarray(state["leftover"], dtype=np.int64).reshape(-1, 2)

    def __iter__(self) -> Iterator[Step]:
        while True:
            rng = np.random.default_rng([self.seed, self._window])
            drawn, cursors = self._draw(rng)
            sentences = np.concatenate((self._leftover, drawn))
            source, target = self._lengths_of(sentences)
            config = self.config
            steps, leftover = pack_steps(
                sentences,
                source,
                target,
                shapes=config.shapes,
                groups_per_step=config.groups_per_step,
                rng=rng,
            )
            while self._offset < len(steps):
                step = steps[self._offset]
                self._offset += 1
                yield step
            self._window, self._offset = self._window + 1, 0
            self._cursors, self._leftover = cursors, leftover

    def _draw(self, rng: np.random.Generator) -> tuple[Ints, list[int]]:
        """Sentences of a window, each pair going through its own permutations one after the other."""
        counts = rng.multinomial(self.window_sentences, self.weights)
        drawn, cursors = [], []
        for pair, count in enumerate(counts):
            begin = self._cursors[pair]
            indices = self._sequence(pair, begin, begin + int(count))
            drawn.append(np.stack((np.full(len(indices), pair, dtype=np.int64), indices), axis=1))
            cursors.append(begin + int(count))
        return np.concatenate(drawn), cursors

    def _sequence(self, pair: int, begin: int, end: int) -> Ints:
        size = len(self.lengths[pair].source)
        if begin == end:
            return np.zeros(0, dtype=np.int64)
        epochs = range(begin // size, (end - 1) // size + 1)
        orders = [np.random.default_rng([self.seed, 1 + pair, epoch]).permutation(size) for epoch in epochs]
        start = epochs[0] * size
        return np.concatenate(orders).astype(np.int64)[begin - start : end - start]

    def _lengths_of(self, sentences: Ints) -> tuple[Ints, Ints]:
        source, target = np.zeros(len(sentences), np.int64), np.zeros(len(sentences), np.int64)
        for pair, lengths in enumerate(self.lengths):
            mine = sentences[:, 0] == pair
            source[mine], target[mine] = (
                lengths.source[sentences[mine, 1]],
                lengths.target[sentences[mine, 1]],
            )
        return source, target
