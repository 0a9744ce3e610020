"""The removal of runs: their results, and the artifacts that only they need; and of artifacts that no run needs.

It takes place under the lock of the store, so no command takes an artifact meanwhile. Results go first, then each
artifact before its inputs, and the record of what the run uses goes last. So whenever this process is killed, every
artifact that is left is whole, and the same command removes the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.report.markdown_summary import COMMAND, SUMMARY
from pipeline.dag.artifact import MANIFEST
from pipeline.dag.inventory import Inventory, size_of
from pipeline.dag.run_directory import remove_results
from pipeline.dag.status import STATUS, read_status
from pipeline.dag.uses import UNRECORDED, UseRecord, hold_store, record_path
from pipeline.earlier_runs import RECORD, imported_from
from pipeline.files import remove_tree
from pipeline.locks import is_locked

REMOVED = ".removed"  # directory of a store for what is being deleted
_WRITTEN = (STATUS, COMMAND, SUMMARY)  # files of a run that are not of its report
_PRUNINGS = ("pruned/*.json", "pruned/*.csv")


@dataclass(frozen=True, kw_only=True)
class Removal:
    """The extent of a removal.

    artifacts: by name, each one before its inputs.
    num_kept: artifacts that other runs need too, or that commands use.
    bytes: size of the artifacts, and of the directories of the runs.
    """

    runs: Sequence[Path]
    artifacts: Sequence[str]
    num_kept: int
    bytes: int


def remove_runs(
    artifacts: Path, runs: Path, chosen: Callable[[Inventory], Sequence[Path]], begin: Callable[[Removal], bool]
) -> list[Path]:
    """Remove runs, and return the files of somebody else that stay in their directories.

    artifacts, runs: the directories of the store, and of all results.
    chosen: returns the directories of the runs to remove.
    begin: called with what would be deleted; nothing is if it returns False.
    Raises ValueError, before anything is deleted, where a command uses one of the runs.
    """
    with hold_store(artifacts, shared=False):
        inventory = Inventory(artifacts, runs)
        directories = list(chosen(inventory))
        freed = inventory.freed_with(directories)
        for directory in directories:
            _check_ended(directory)
        for name in freed:
            _check_unlocked(artifacts / f"{name}.lock")
        used = {name for directory in directories for name in inventory.uses.get(directory, ())}
        removal = Removal(
            runs=directories,
            artifacts=freed,
            num_kept=len(used - {*freed}),
            bytes=size_of(inventory.places(freed)) + sum(size_of([path]) for path in directories if path.exists()),
        )
        if not begin(removal):
            return []
        return _remove(inventory, directories, freed)


def remove_unused(artifacts: Path, runs: Path, begin: Callable[[Removal], bool]) -> None:
    """Remove the artifacts that no run needs, but those that a command uses at the moment, and their inputs.

    artifacts, runs, begin: as in `remove_runs`.
    Raises ValueError where a command that makes no run, as `make evaluate`, takes artifacts from the store.
    """
    with hold_store(artifacts, shared=False):
        if (lock := artifacts / UNRECORDED).exists() and is_locked(lock):
            raise ValueError(
                f"a command that belongs to no run (evaluate, prune, backtranslate or distill) works in {artifacts}; "
                "wait for its end, or stop it"
            )
        inventory = Inventory(artifacts, runs)
        unused = inventory.unused()
        freed = inventory.without_inputs_of(unused, [name for name in unused if _is_in_use(artifacts / f"{name}.lock")])
        num_kept, size = len(unused) - len(freed), size_of(inventory.places(freed))
        if begin(Removal(runs=[], artifacts=freed, num_kept=num_kept, bytes=size)) and artifacts.is_dir():
            _remove(inventory, [], freed)


def _remove(inventory: Inventory, directories: Sequence[Path], freed: Sequence[str]) -> list[Path]:
    for directory in directories:  # from here on, the record alone says what the rest of the removal is
        UseRecord(inventory.root, directory).add(*inventory.uses.get(directory, ()))
    left = [file for directory in directories for file in _remove_results(inventory, directory)]
    trash = inventory.root / REMOVED
    if trash.exists():  # of a removal that was killed
        remove_tree(trash)
    trash.mkdir()
    for place in inventory.places(freed):
        place.rename(trash / f"{place.parent.name}-{place.name}")
    remove_tree(trash)
    for directory in directories:
        record_path(inventory.root, directory).unlink(missing_ok=True)
    return left


def _remove_results(inventory: Inventory, directory: Path) -> list[Path]:
    pages = [name for name in inventory.uses.get(directory, ()) if name.startswith("data/")]
    of_pages = [file.name for page in inventory.places(pages) for file in page.iterdir() if file.name != MANIFEST]
    prunings = [str(file.relative_to(directory)) for pattern in _PRUNINGS for file in directory.glob(pattern)]
    records = [RECORD] if imported_from(directory) is not None else []  # no report has laid it out
    return remove_results(directory, [*_WRITTEN, *of_pages, *prunings, *records])


def _check_ended(directory: Path) -> None:
    """Raise ValueError where a command is making the run."""
    status = read_status(directory)
    if status is not None and status.state == "running":
        raise ValueError(
            f"run {directory.name} is running (process {status.pid} on {status.host}); stop it first. If that process "
            f"is gone, delete {directory / STATUS}"
        )


def _check_unlocked(lock: Path) -> None:
    """Raise ValueError where a command makes, translates with or otherwise uses the artifact of this lock."""
    if _is_in_use(lock):
        artifact = f"{lock.parent.name}/{lock.stem}"
        raise ValueError(f"artifact {artifact} of the run is in use by another command; wait for it, or stop it")


def _is_in_use(lock: Path) -> bool:
    return lock.exists() and is_locked(lock)
