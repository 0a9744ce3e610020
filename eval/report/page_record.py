"""page.json: the runs that a page shows, so that the page of other runs is replaced only where the user says so."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

RECORD = "page.json"
PAGE = "report.html"
_RUN = ("run.json", "status.json")  # a directory with one of these belongs to a run
_SWEEP = "sweep.json"


def check_page(out: Path, runs: Sequence[Path]) -> None:
    """Raise ValueError where a directory has the results of a run, of a sweep, or the page of other runs.

    The page of one run may always be drawn in its own directory.
    runs: directories of the runs that the new page shows.
    """
    if [out.resolve()] == [run.resolve() for run in runs]:
        return
    if any((out / name).exists() for name in _RUN):
        content = "the results of a run"
    elif (out / _SWEEP).exists():
        content = "the page of a sweep"
    elif (out / PAGE).exists() and (shown_runs := _shown(out)) != {run.resolve() for run in runs}:
        content = (
            f"a page of other runs ({', '.join(sorted(run.name for run in shown_runs)) or 'an older version drew it'})"
        )
    else:
        return
    raise ValueError(
        f"{out} has {content}; choose another name, as NAME={out.name}-2, or replace the page there by REPLACE=1 "
        "(--out and --replace of python -m eval report)"
    )


def has_foreign_page(directory: Path) -> bool:
    """Return whether a directory without a run has the page of other runs."""
    has_page = (directory / PAGE).exists() and (directory / RECORD).exists()
    return has_page and not any((directory / name).exists() for name in _RUN)


def record_page(out: Path, runs: Sequence[Path]) -> None:
    """Write down the runs that the page in a directory shows, as paths from there, unless it is a run's own page."""
    if [out.resolve()] == [run.resolve() for run in runs]:
        return
    paths = [os.path.relpath(run.resolve(), out.resolve()) for run in runs]
    (out / RECORD).write_text(json.dumps({"runs": paths}, ensure_ascii=False, indent=1), encoding="utf-8")


def _shown(out: Path) -> set[Path]:
    """Return the directories of the runs that a page shows; none for a page without a record."""
    record = out / RECORD
    paths = json.loads(record.read_text(encoding="utf-8"))["runs"] if record.exists() else []
    return {(out / path).resolve() for path in paths}
