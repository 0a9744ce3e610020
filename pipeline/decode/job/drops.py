"""Records of expert choices that a capacity dropped. Every process of a job leaves one, and its starter adds them."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from pipeline.files import write_atomically
from pipeline.model.moe.drops import Counted, DropCount

logger = logging.getLogger(__name__)

DropRecord = dict[str, int]  # `asked` and `kept` of a DropCount


def drop_record(drops: DropCount) -> DropRecord:
    return {"asked": drops.asked, "kept": drops.kept}


def add_record(drops: DropCount, record: DropRecord) -> None:
    drops.add(cast(Counted, SimpleNamespace(**record)))


def leave_drops(drops: DropCount, log: Path, rank: int) -> None:
    """Write the count of one process beside its log."""
    log.mkdir(parents=True, exist_ok=True)
    write_atomically(log / f"rank-{rank}.drops", json.dumps(drop_record(drops)))


def say_drops(log: Path, title: str) -> None:
    """Log the sum over all processes. Nothing is logged if no process left a count, as without a capacity."""
    total = DropCount()
    paths = sorted(log.glob("rank-*.drops"))
    for path in paths:
        add_record(total, json.loads(path.read_text(encoding="utf-8")))
    if paths:
        logger.info("%s: %s", title, total)
