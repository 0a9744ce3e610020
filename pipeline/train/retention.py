"""Which checkpoints of a run stay on disk. Free of torch.

What is decided depends on nothing but the checkpoints themselves, so a resumed run decides as one that was never
interrupted.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.checked_json import load_checked
from pipeline.stage import remove_tree, write_atomically
from pipeline.train.config import CheckpointConfig

logger = logging.getLogger(__name__)

MARKS = "best.json"
STATE = "state.json"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A published checkpoint. loss: of the validation at its step; None where there was none."""

    name: str
    step: int
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What `best.json` says to decoding: names of checkpoints. best_k: best first. last_n: newest first."""

    best: str
    last: str
    best_k: list[str]
    last_n: list[str]


def saved(root: Path) -> list[Saved]:
    """The published checkpoints below `root`, oldest first; one whose state cannot be read is none."""
    found = []
    for path in root.glob("step-*"):
        if (step := _step(path)) is None or not (path / STATE).exists():
            continue
        try:
            state = load_checked((path / STATE).read_text(encoding="utf-8"))
        except ValueError as error:
            logger.warning("%s is damaged and not counted: %s", path, error)
            continue
        found.append(Saved(name=path.name, step=step, loss=_loss(state)))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def mark(found: Sequence[Saved], config: CheckpointConfig) -> Marks:
    """found: oldest first, not empty. Of equal losses the earlier is better; before any validation the last is best."""
    last_n = [checkpoint.name for checkpoint in reversed(found)][: config.last_n]
    validated = [
        (checkpoint.loss, checkpoint.step, checkpoint.name) for checkpoint in found if checkpoint.loss is not None
    ]
    best_k = [name for _, _, name in sorted(validated)][: config.best_k] or last_n[:1]
    return Marks(best=best_k[0], last=last_n[0], best_k=best_k, last_n=last_n)


def apply(root: Path, config: CheckpointConfig) -> None:
    """Write the marks and remove what need not stay; also what a crash left half-written or half-removed."""
    found = saved(root)
    if not found:
        return
    marks = mark(found, config)
    write_atomically(root / MARKS, json.dumps(asdict(marks)))
    stay = {*marks.best_k, *marks.last_n}
    if config.every_n:
        stay |= {checkpoint.name for checkpoint in found if checkpoint.step % config.every_n == 0}
    for path in root.glob("step-*"):
        if path.name not in stay:
            remove(path)


def forget_after(root: Path, step: int) -> None:
    """Remove checkpoints that are newer than the one a run goes on from: they are damaged, or it would be another."""
    for path in root.glob("step-*"):
        if (_step(path) or 0) > step:
            remove(path)


def resolve(path: Path) -> Path:
    """The checkpoint that a path names: itself, or the best of a directory of the train stage or of checkpoints."""
    if (path / STATE).exists():
        return path
    for root in (path, path / "checkpoints"):
        if (root / MARKS).exists():
            best: str = json.loads((root / MARKS).read_text(encoding="utf-8"))["best"]
            return root / best
    raise ValueError(
        f"train.initialize_from={path} is neither a checkpoint ({STATE}) nor a directory with checkpoints/{MARKS}"
    )


def content(checkpoint: Path) -> dict[str, str]:
    """The sha256 of each of its shards. Raises ValueError where its state is damaged."""
    try:
        shards: dict[str, str] = load_checked((checkpoint / STATE).read_text(encoding="utf-8"))["shards"]
    except ValueError as error:
        raise ValueError(f"checkpoint {checkpoint} is damaged: {STATE} cannot be read: {error}") from error
    return shards


def remove(checkpoint: Path) -> None:
    """Its state first: a crash in between leaves something that nobody takes for a checkpoint."""
    (checkpoint / STATE).unlink(missing_ok=True)
    remove_tree(checkpoint)


def _step(path: Path) -> int | None:
    step = path.name.removeprefix("step-")
    return int(step) if step.isdigit() else None


def _loss(state: dict[str, object]) -> float | None:
    if "validation" in state:
        return state["validation"]  # type: ignore[return-value]
    progress: dict[str, float | None] = state["progress"]  # type: ignore[assignment]
    return progress["best_loss"] if progress["best_step"] == progress["step"] else None  # an older version wrote it
