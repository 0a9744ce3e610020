"""What a capacity dropped in all processes of a job: each leaves its count beside its log, the starter says the sum."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import write_atomically
from pipeline.model.moe.drops import DropCount

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Count:
    """Of one process."""

    asked: int
    kept: int


def leave_drops(drops: DropCount, log: Path, rank: int) -> None:
    log.mkdir(parents=True, exist_ok=True)
    write_atomically(log / f"rank-{rank}.drops", json.dumps({"asked": drops.asked, "kept": drops.kept}))


def say_drops(log: Path, title: str) -> None:
    """Nothing where no process left a count: no capacity was asked for, or nothing was left to translate."""
    total = DropCount()
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(log.glob("rank-*.drops"))]
    for part in parts:
        total.add(_Count(**part))
    if parts:
        logger.info("%s: %s", title, total)
