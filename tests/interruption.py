"""Interruptions at the wrong moment, for tests."""

from pathlib import Path

from pipeline.tasks.once import RESULT


def killed_while_removing(directory: Path) -> None:
    """Remove all files but those that mark a shard as complete, and raise. It stands in for `remove_tree`."""
    for path in directory.rglob("*"):
        if path.is_file() and path.name != RESULT:
            path.unlink()
    raise KeyboardInterrupt
