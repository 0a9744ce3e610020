"""Output of all benchmarks: the device's name, the CSV file, the origin of its figures, and a table for a terminal."""

import csv
import platform
import re
import subprocess
import time
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from eval import text_table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
QUICK_RESULTS = ROOT / "data" / "artifacts" / "bench"
MEAN = "mean"  # what a row has for a seed that summarises several
ORIGIN = ("version", "commit", "date")  # the last columns of every CSV

Row = Mapping[str, Any]


@cache
def origin() -> dict[str, str]:
    """Return the origin of a figure: the project's version, the commit, and the day (UTC).

    The commit ends in `+` if tracked files differ from it, apart from results. It is empty outside of a git checkout.
    """
    git = ["git", "-C", str(ROOT)]
    changed = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results"]
    try:
        commit, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (["rev-parse", "--short=10", "HEAD"], changed)
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        commit, changes = "", ""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return {"version": project_version(), "commit": commit.strip() + ("+" if changes else ""), "date": day}


def portable(value: Any, root: Path = ROOT) -> Any:
    """Return settings, or words of a command, without the directories of a machine.

    Absolute paths below `root` become relative, and others the last name alone.
    """
    if isinstance(value, dict):
        return {key: portable(item, root) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [portable(item, root) for item in value]
    if isinstance(value, str) and (path := Path(value)).is_absolute():
        return str(path.relative_to(root)) if path.is_relative_to(root) else path.name
    return value


def project_version() -> str:
    """Return the version in pyproject.toml."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def device_name(device: str) -> str:
    """Return the model of the GPU or CPU."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return model[1] if model else platform.processor() or platform.machine()


def slug(name: str) -> str:
    """Return the name with lower-case letters, digits and single hyphens only."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def results_file(benchmark: str, device: str, out: Path | None, *, quick: bool = False) -> Path:
    """Return the CSV file of a benchmark on a device.

    out: the file, or its folder. None is bench/results, or data/artifacts/bench for a quick try, which replaces no
        published table.
    """
    out = out or (QUICK_RESULTS if quick else RESULTS)
    return out / f"{benchmark}-{slug(device)}.csv" if out.is_dir() or not out.suffix else out


def write_csv(rows: Sequence[Row], columns: Sequence[str], path: Path) -> None:
    """Write judged rows and their `origin`. Floats have five significant digits; cells without a value are empty.

    A row that was measured by an earlier command brings its own origin.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*columns, *ORIGIN], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            values = {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()}
            writer.writerow({**origin(), **values})


def aligned(lines: Sequence[Sequence[str]], *, left: Sequence[str]) -> str:
    """Return lines of cells as a table. lines: the header first. left: names of the columns that are not numbers."""
    return text_table.aligned(lines, [column for column, name in enumerate(lines[0]) if name in left])


def target_columns(measured: float | None, limit: float | None, *, at_least: bool = True) -> dict[str, Any]:
    """Return the columns of a target, none without a value or limit. at_least: the limit is the least allowed value."""
    if measured is None or limit is None:
        return {}
    to_limit = limit / measured if at_least else measured / limit
    verdict = "ok" if to_limit <= 1 else "missed"
    return {"measured": measured, "limit": limit, "to_limit": to_limit, "verdict": verdict}


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with so many decimals, empty for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Return a share in per cent, without the sign, empty for None."""
    return "" if value is None else f"{100 * value:.1f}"


def mark(row: Row, prefix: str = "") -> str:
    """Return a target as `measured/limit verdict`, empty without a verdict."""
    if row[f"{prefix}verdict"] is None:
        return ""
    return f"{row[f'{prefix}measured']:.3f}/{row[f'{prefix}limit']:.3f} {row[f'{prefix}verdict']}"
