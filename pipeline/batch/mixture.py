"""The endless stream of training steps: sentences drawn from pairs and sources, packed window by window.

A window draws about as many sentence pairs as its steps hold, adds the leftover of the last window, and packs them into
steps. It is a function of the seed and a position. The position is a small record that does not depend on the number of
processes. To resume, one window is packed again. A window ends at the end of a phase of the curriculum.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.batch.augmentation import Augmentation
from pipeline.batch.config import BatchConfig
from pipeline.batch.lengths import PairLengths, sentence_lengths, units_of
from pipeline.batch.packing import Ints, Step, pack_steps
from pipeline.batch.proportions import NEVER, Phase, phases
from pipeline.batch.shuffle import shuffled

STREAM = 2  # version of positions: another version would make other steps from the same position


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place in the stream: the beginning of a window, and how many of its steps were taken.

    step: first step of the window, counted from 1.
    window: number of the window.
    cursors: sentences drawn before the window from each unit.
    leftover: sentences that were drawn before the window and are in none of the steps before it, [n, 2].
    offset: steps of the window that were taken.
    """

    step: int
    window: int
    cursors: Ints
    leftover: Ints
    offset: int = 0

    def state(self) -> dict[str, Any]:
        """Return the position in a form that JSON can store."""
        return {
            "stream": STREAM,
            "step": self.step,
            "window": self.window,
            "offset": self.offset,
            "cursors": self.cursors.tolist(),
            "leftover": self.leftover.tolist(),
        }


class Mixture:
    """An endless iterable of steps. `position` is that of the next step. `restore()` sets it from its `state()`.

    augmentation: changes rows when they are drawn.
    """

    def __init__(
        self,
        config: BatchConfig,
        lengths: Sequence[PairLengths],
        *,
        seed: int,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.config, self.lengths, self.seed, self.augmentation = config, lengths, seed, augmentation
        self.units = units_of(lengths)
        self.phases = phases(config.mixture, [pair.name for pair in lengths], self.units)
        self._mean_targets = np.array(
            [lengths[unit.pair].target[unit.begin : unit.end].sum() / max(unit.rows, 1) for unit in self.units]
        )
        self.position = Position(
            step=1,
            window=0,
            cursors=np.zeros(len(self.units), dtype=np.int64),
            leftover=np.zeros((0, 2), dtype=np.int64),
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the `state()` of a position.

        Raises ValueError if another version wrote the position, or if the corpus has other sources.
        """
        if (version := state.get("stream", 1)) != STREAM:
            raise ValueError(
                f"the checkpoint's position in the data is of version {version}, this program reads {STREAM}, which "
                "packs other steps: go on with the version that wrote it, or start anew from its weights by "
                "train.initialize_from"
            )
        if len(state["cursors"]) != len(self.units):
            raise ValueError(
                f"the checkpoint's position in the data has {len(state['cursors'])} sources of pairs, this run has "
                f"{len(self.units)}: the corpus has changed; start anew from its weights by train.initialize_from"
            )
        self.position = Position(
            step=state["step"],
            window=state["window"],
            cursors=np.asarray(state["cursors"], dtype=np.int64),
            leftover=np.asarray(state["leftover"], dtype=np.int64).reshape(-1, 2),
            offset=state["offset"],
        )

    def __iter__(self) -> Iterator[Step]:
        """Yield steps. A thread packs the next window in the meantime."""
        with ThreadPoolExecutor(1, thread_name_prefix="packing") as ahead:
            window = ahead.submit(self._window, self.position)
            while True:
                steps, following = window.result()
                window = ahead.submit(self._window, following)
                while self.position.offset < len(steps):
                    step = steps[self.position.offset]
                    self.position = replace(self.position, offset=self.position.offset + 1)
                    yield step
                self.position = following

    def table(self) -> list[dict[str, Any]]:
        """Return the shares of each phase, to be printed.

        repeats: how often each row is drawn while as many sentences are drawn as the phase has rows.
        """
        return [{"from_step": phase.from_step, "sources": self._shares(phase)} for phase in self.phases]

    def _shares(self, phase: Phase) -> list[dict[str, Any]]:
        entries: dict[tuple[str, str], dict[str, Any]] = {}
        for unit, share in zip(self.units, phase.probabilities.tolist(), strict=True):
            if share:
                pair = self.lengths[unit.pair].name
                empty = {"pair": pair, "source": unit.source, "rows": 0, "share": 0.0}
                entry = entries.setdefault((pair, unit.source), empty)
                entry["rows"], entry["share"] = entry["rows"] + unit.rows, entry["share"] + share
        rows = sum(entry["rows"] for entry in entries.values())
        return [{**entry, "repeats": entry["share"] * rows / entry["rows"]} for entry in entries.values()]

    def _window(self, position: Position) -> tuple[list[Step], Position]:
        """Return the steps of the window at a position, possibly none, and the position of the next window."""
        rng = np.random.default_rng([self.seed, 0, position.window])
        phase, end = self._phase(position.step)
        counts = rng.multinomial(self._window_sentences(phase, end - position.step), phase.probabilities)
        sentences = np.concatenate((position.leftover, self._draw(position.cursors, counts)))
        sentences = sentences[rng.permutation(len(sentences))]
        lengths, changed = sentence_lengths(sentences, self.lengths), None
        if self.augmentation is not None:
            sentences, lengths, changed = self.augmentation.change(sentences, lengths, position.window)
        steps, leftover = pack_steps(
            sentences,
            lengths,
            shapes=self.config.shapes,
            groups_per_step=self.config.groups_per_step,
            rng=rng,
        )
        if changed is not None:
            steps = [replace(step, changed=changed) for step in steps]
            leftover = changed.plain_names(leftover)
        steps = steps[: end - position.step]
        step = position.step + len(steps)
        return steps, Position(
            step=step,
            window=position.window + 1,
            cursors=position.cursors + counts,
            leftover=leftover if step < end else leftover[:0],  # the next phase starts without leftover
        )

    def _phase(self, step: int) -> tuple[Phase, int]:
        """Return the phase of a step, and the first step after that phase."""
        index = sum(1 for phase in self.phases if phase.from_step <= step) - 1
        return self.phases[index], next((phase.from_step for phase in self.phases[index + 1 :]), NEVER)

    def _window_sentences(self, phase: Phase, steps_left: int) -> int:
        first = self.config.shapes[0]
        step_tokens = self.config.groups_per_step * first.rows * first.target
        steps = min(self.config.window_steps, steps_left)
        return max(1, int(steps * step_tokens / float(phase.probabilities @ self._mean_targets)))

    def _draw(self, cursors: Ints, counts: npt.NDArray[np.int64]) -> Ints:
        """Draw `counts` sentences from the units. Each unit takes its rows in one shuffled order after another."""
        drawn = [np.zeros((0, 2), dtype=np.int64)]
        for index in np.flatnonzero(counts):
            unit = self.units[index]
            epochs, positions = np.divmod(np.arange(cursors[index], cursors[index] + counts[index]), unit.rows)
            for epoch in range(int(epochs[0]), int(epochs[-1]) + 1):
                rows = unit.begin + shuffled(positions[epochs == epoch], unit.rows, (self.seed, 1, int(index), epoch))
                drawn.append(np.stack((np.full_like(rows, unit.pair), rows), axis=1))
        return np.concatenate(drawn)
