"""The status of a run: `status.json` in `runs/<name>`, which the command that makes the run keeps up to date.

The progress of a training is in the records that it writes anyway; `read_status` reads it there.
"""

import json
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

logger = logging.getLogger(__name__)

STATUS, METRICS = "status.json", "metrics.jsonl"
NEWEST = 1 << 18  # bytes at the end of metrics.jsonl that contain its newest training record
SAME_PROCESS = 60.0  # seconds by which a clock that was set may differ from the start of the same process


@dataclass(frozen=True, kw_only=True)
class StageStatus:
    """One stage.

    started: when this command began it.
    seconds: time since then, or that the stage took.
    fraction: share of its work that is done, None where unknown.
    resumed_at: the fraction that an earlier attempt had done.
    step, loss, tokens_per_second: of a training, else None.
    """

    title: str
    state: str
    started: datetime
    seconds: float
    fraction: float | None
    resumed_at: float
    step: int | None
    loss: float | None
    tokens_per_second: float | None

    @property
    def open(self) -> bool:
        return self.state in ("running", "waiting")

    @property
    def whole(self) -> float | None:
        """Seconds of the whole stage at the pace of this attempt; None where its progress is not known."""
        if self.fraction is None or self.fraction <= self.resumed_at:
            return None
        return self.seconds / (self.fraction - self.resumed_at)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that a running stage still needs; None where that is not known."""
        if self.state != "running" or self.whole is None or self.fraction is None:
            return None
        return self.whole * (1 - self.fraction)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Progress of several systems that are made one after the other. seconds_left: an estimate."""

    what: str
    num_done: int
    total: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One run.

    state: running, done, failed, stopped (the same command continues), or lost: `running`, without such a process.
    recipe, pairs: empty before the corpus is known, and where a version before 0.3 wrote the file.
    stages: those that this command did itself, in the order of their start.
    batch: the last group of systems that it began, such as bilingual models.
    steps: names of the steps of the command, in their order (`pipeline.dag.steps`).
    expected: estimates for what has not begun, as `Listener.expect` takes them.
    """

    state: str
    pid: int
    host: str
    started: datetime
    updated: datetime
    recipe: str = ""
    pairs: tuple[str, ...] = ()
    stages: tuple[StageStatus, ...]
    batch: Batch | None
    error: str
    steps: tuple[str, ...] = ()
    expected: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Time since the command started, or that it took."""
        return ((now() if self.state == "running" else self.updated) - self.started).total_seconds()


def read_status(directory: Path) -> RunStatus | None:
    """Return the status of the run whose results are, or will be, in this directory; None before it began."""
    try:
        record = json.loads((directory / STATUS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    started = datetime.fromisoformat(record["started"])
    state = record["state"]
    if state == "running" and record["host"] == platform.node() and not _alive(record["pid"], started):
        state = "lost"
    updated = datetime.fromisoformat(record["updated"])
    lost_at = updated if state == "lost" else None
    return RunStatus(
        state=state,
        pid=record["pid"],
        host=record["host"],
        started=started,
        updated=updated,
        recipe=record.get("recipe", ""),
        pairs=tuple(record.get("pairs", ())),
        stages=tuple(_stage(stage, lost_at) for stage in record["stages"]),
        batch=_batch(record["batch"], runs=state == "running"),
        error=record["error"],
        steps=tuple(record.get("steps", ())),
        expected=record.get("expected", {}),
    )


def training_seconds(directory: Path) -> float | None:
    """Return how long the main training of a finished run took, from `metrics.jsonl`; None without that file."""
    path = directory / METRICS
    record = _newest(path) if path.exists() else None
    return None if record is None else float(record["seconds"])


def now() -> datetime:
    return datetime.now(UTC)


def _alive(pid: int, started: datetime) -> bool:
    """Return whether the process still runs; another process may have got its number."""
    try:
        process = psutil.Process(pid)
        same = process.create_time() < started.timestamp() + SAME_PROCESS
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _batch(record: Mapping[str, Any] | None, *, runs: bool) -> Batch | None:
    if record is None:
        return None
    since = (now() - datetime.fromisoformat(record["at"])).total_seconds() if runs else 0.0
    left = max(0.0, record["seconds_left"] - since)
    return Batch(what=record["what"], num_done=record["done"], total=record["total"], seconds_left=left)


def _stage(record: Mapping[str, Any], lost_at: datetime | None) -> StageStatus:
    """Read one stage. lost_at: when a lost run wrote its last status."""
    started = datetime.fromisoformat(record["started"])
    is_open = record["state"] in ("running", "waiting")
    finished = record["state"] in ("done", "reused")
    progress: dict[str, Any] = (
        {"fraction": 1.0} if finished else stage_progress(record["title"], Path(record["directory"]))
    )
    return StageStatus(
        title=record["title"],
        state="lost" if lost_at is not None and is_open else record["state"],
        started=started,
        seconds=((lost_at or now()) - started).total_seconds() if record["seconds"] is None else record["seconds"],
        fraction=progress.get("fraction"),
        resumed_at=record["resumed_at"],
        step=progress.get("step"),
        loss=progress.get("loss"),
        tokens_per_second=progress.get("tokens_per_second"),
    )


def stage_progress(title: str, directory: Path) -> dict[str, Any]:
    """Return the progress that the files of a training or a translation show; empty before the files exist."""
    work = directory if directory.exists() else directory.with_suffix(".partial")
    kind = title.partition(" ")[0]
    try:
        if kind == "train":
            return _training(work / "log")
        if kind == "translate":
            return {"fraction": 1.0 if directory.exists() else _translated(work)}
    except FileNotFoundError:  # not begun, or published between two looks
        pass
    return {}


def _training(log: Path) -> dict[str, Any]:
    budget = json.loads((log / "job.json").read_text(encoding="utf-8"))["train"]
    record = _newest(log / METRICS)
    if record is None:
        return {}
    limits = (("step", budget["max_steps"]), ("target_tokens", budget["max_tokens"]))
    spent = [record[count] / most for count, most in limits if most]
    return {
        "fraction": min(1.0, max(spent)),
        "step": record["step"],
        "loss": record["cross_entropy"],
        "tokens_per_second": record["target_tokens"] / record["seconds"],
    }


def _newest(path: Path) -> dict[str, Any] | None:
    """Return the newest whole training record in a file to which a process may be writing."""
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - NEWEST))
        whole = stream.read().split(b"\n")[:-1]
    lines = [line for line in whole if line.startswith(b'{"event": "train"')]
    return json.loads(lines[-1]) if lines else None


def _translated(work: Path) -> float:
    job = json.loads((work / "log" / "job.json").read_text(encoding="utf-8"))
    rows: int = sum(shard["stop"] - shard["start"] for shards in job.get("rounds", ()) for shard in shards)
    lines = sum(path.read_bytes().count(b"\n") for path in work.glob("work/*/*.jsonl"))
    return min(1.0, lines / max(rows, 1))
