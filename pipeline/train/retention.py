"""Decide which checkpoints of a run stay on disk, without torch.

The decision depends on the checkpoints alone, so a resumed run decides like one that was never interrupted.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.checked_json import dump_checked, load_checked
from pipeline.engine.checkpoint.names import STATE
from pipeline.files import remove_tree, write_atomically
from pipeline.train.config import CheckpointConfig

logger = logging.getLogger(__name__)

MARKS = "best.json"
LATE_VALIDATION = "late_validation"  # in the state of a checkpoint: the result of a validation after it was saved


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A published checkpoint.

    loss: of the validation at its step; None without a validation.
    score: of the translations of that validation; None if it did not translate.
    """

    name: str
    step: int
    loss: float | None
    score: float | None = None


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The names of checkpoints in `best.json`, which decoding reads. best_k: best first. last_n: newest first."""

    best: str
    last: str
    best_k: list[str]
    last_n: list[str]


def saved(root: Path) -> list[Saved]:
    """Return the published checkpoints below `root`, oldest first, without those that cannot be read."""
    checkpoints = []
    for path in root.glob("step-*"):
        if (step := _step(path)) is None or not (path / STATE).exists():
            continue
        try:
            state = load_checked((path / STATE).read_text(encoding="utf-8"))
        except ValueError as error:
            logger.warning("%s is damaged and not counted: %s", path, error)
            continue
        late = state.get(LATE_VALIDATION, {})
        loss, score = late.get("loss", _loss(state)), late.get("score", state.get("validation_score"))
        checkpoints.append(Saved(name=path.name, step=step, loss=loss, score=score))
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.step)


def quality(loss: float, score: float | None) -> tuple[float, float]:
    """Return a value that is larger for a better validation. The score of its translations counts first, if any."""
    return -math.inf if score is None else score, -loss


def mark(checkpoints: Sequence[Saved], config: CheckpointConfig) -> Marks:
    """Choose the best and the last checkpoints. checkpoints: oldest first, not empty.

    The earlier of two equal validations is better. Before any validation the last checkpoint is the best.
    """
    last_n = [checkpoint.name for checkpoint in reversed(checkpoints)][: config.last_n]
    validated = [(quality(saved.loss, saved.score), saved.name) for saved in checkpoints if saved.loss is not None]
    ordered = sorted(validated, key=lambda pair: pair[0], reverse=True)  # stable, so the earlier of equal ones is first
    best_k = [name for _, name in ordered][: config.best_k] or last_n[:1]
    return Marks(best=best_k[0], last=last_n[0], best_k=best_k, last_n=last_n)


def apply(root: Path, config: CheckpointConfig) -> None:
    """Write the marks and remove all other checkpoints, also those that a crash left incomplete."""
    checkpoints = saved(root)
    if not checkpoints:
        return
    marks = mark(checkpoints, config)
    write_atomically(root / MARKS, json.dumps(asdict(marks)))
    stay = {*marks.best_k, *marks.last_n}
    if config.every_n:
        stay |= {checkpoint.name for checkpoint in checkpoints if checkpoint.step % config.every_n == 0}
    for path in root.glob("step-*"):
        if path.name not in stay:
            remove(path)


def add_validation(root: Path, step: int, loss: float, score: float | None) -> None:
    """Add the result of a validation to the checkpoint of that step, which was saved before it."""
    (checkpoint,) = (path for path in root.glob("step-*") if _step(path) == step)
    values = {**state(checkpoint), LATE_VALIDATION: {"loss": loss, "score": score}}
    write_atomically(checkpoint / STATE, dump_checked(values))


def forget_after(root: Path, step: int) -> None:
    """Remove the checkpoints after the step from which a run continues. They are damaged, or it would use them."""
    for path in root.glob("step-*"):
        if (_step(path) or 0) > step:
            remove(path)


def resolve(path: Path) -> Path:
    """Return the checkpoint at a path, or the best one below it. Raises ValueError.

    path: a checkpoint, a directory of the train stage, or its directory of checkpoints.
    """
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
    """Return the sha256 of each shard of a checkpoint. Raises ValueError if its state is damaged."""
    shards: dict[str, str] = state(checkpoint)["shards"]
    return shards


def state(checkpoint: Path) -> dict[str, Any]:
    """Return the state of a checkpoint that is not in tensors. Raises ValueError if it is damaged."""
    try:
        content: dict[str, Any] = load_checked((checkpoint / STATE).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"checkpoint {checkpoint} is damaged: {STATE} cannot be read: {error}") from error
    return content


def remove(checkpoint: Path) -> None:
    """Remove a checkpoint, its state first. After a crash the incomplete directory is no checkpoint."""
    (checkpoint / STATE).unlink(missing_ok=True)
    remove_tree(checkpoint)


def _step(path: Path) -> int | None:
    step = path.name.removeprefix("step-")
    return int(step) if step.isdigit() else None


def _loss(state: dict[str, object]) -> float | None:
    if "validation" in state:
        return state["validation"]  # type: ignore[return-value]
    progress: dict[str, float | None] = state["progress"]  # type: ignore[assignment]
    return progress["best_loss"] if progress["best_step"] == progress["step"] else None  # written by an older version
