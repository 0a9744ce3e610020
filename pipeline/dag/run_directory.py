"""`runs/<name>`, where the results of a run are laid out."""

import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.dag.artifact import MANIFEST, Artifact
from pipeline.files import remove_tree
from pipeline.locks import hold_lock

logger = logging.getLogger(__name__)

ORIGIN = ".artifact"  # its first line is the key of the report, the others are the files of the results


def publish_run(report: Artifact, directory: Path, finish: Callable[[Path], None] = lambda directory: None) -> Path:
    """Lay out a report as `runs/<name>` in one step, in place of an older report.

    Files that somebody else put there stay, whenever this process is killed.
    finish: called with the directory before another process may publish there.
    """
    with _publishing(directory) as (fresh, old):
        if _laid_out(directory)[:1] != [report.key] or not (directory / "report.html").exists():
            _replace(directory, report, fresh, old)
        finish(directory)
    return directory


def _replace(directory: Path, report: Artifact, fresh: Path, old: Path) -> None:
    """Put the report into the directory. fresh, old: as `_publishing` gives them."""
    if fresh.exists():
        remove_tree(fresh)
    shutil.copytree(report.path, fresh, ignore=shutil.ignore_patterns(MANIFEST))
    lines = [report.key, *(str(file.relative_to(fresh)) for file in sorted(fresh.rglob("*")) if file.is_file())]
    (fresh / ORIGIN).write_text("\n".join(lines), encoding="utf-8")
    if directory.exists():
        if _laid_out(directory):
            logger.info("%s: replacing the results of an earlier run", directory.name)
        directory.rename(old)
    fresh.rename(directory)
    _take_over(old, directory)


def lay_out(artifact: Artifact, directory: Path) -> Path:
    """Put the files of an artifact into `runs/<name>`; other files there stay."""
    with _publishing(directory):
        directory.mkdir(exist_ok=True)
        for file in sorted(artifact.path.iterdir()):
            if file.name != MANIFEST:
                shutil.copyfile(file, directory / file.name)
    return directory


@contextmanager
def _publishing(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Lock the layout of a run, and mend the half-done work of a process that was killed.

    Gives the names of the run's next directory and of its last one.
    """
    fresh, old, lock = (directory.with_name(f".{directory.name}.{kind}") for kind in ("new", "old", "lock"))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(lock, f"results of {directory.name}"):
        if old.exists() and not directory.exists():
            old.rename(directory)
        _take_over(old, directory)
        yield fresh, old


def _laid_out(directory: Path) -> list[str]:
    """Return the key of the report in a run directory, and the files that came with it; empty without a report."""
    origin = directory / ORIGIN
    return origin.read_text(encoding="utf-8").split("\n") if origin.exists() else []


def _take_over(old: Path, directory: Path) -> None:
    """Move files of somebody else from a run's last directory to its new one, and remove the last one, if there is one.

    The results are moved too if the new directory has none.
    """
    if not old.exists():
        return
    replaced = {ORIGIN, *_laid_out(old)[1:]} if _laid_out(directory) else set()
    for file in [path for path in sorted(old.rglob("*")) if path.is_symlink() or not path.is_dir()]:
        name = file.relative_to(old)
        if str(name) not in replaced and not os.path.lexists(directory / name):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            file.rename(directory / name)
    remove_tree(old)


def remove_results(directory: Path, names: Collection[str]) -> list[Path]:
    """Remove the report of a run and the files of these names, then the directory if nothing is left in it.

    Returns the files of somebody else, which stay. A call that was killed is completed by the next one.
    """
    if not directory.parent.is_dir():
        return []
    with _publishing(directory):
        for name in [*names, *_laid_out(directory)[1:], ORIGIN]:
            (directory / name).unlink(missing_ok=True)
        return _remove_empty(directory)


def _remove_empty(directory: Path) -> list[Path]:
    """Remove a directory and those below it that have no files, and return the files."""
    files: list[Path] = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        files += _remove_empty(path) if path.is_dir() and not path.is_symlink() else [path]
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
    return files
