"""Output of all benchmarks: the device's name, the CSV's place and form, the origin of figures, an aligned table."""

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

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
ORIGIN = ("version", "commit", "date")  # the last columns of every CSV

Row = Mapping[str, Any]


@cache
def origin() -> dict[str, str]:
    """Tell what was measured, and when: the project's version, the commit, and the day (UTC).

    The commit ends in `+` where tracked files differ from it, results aside; it is empty outside of a git checkout.
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


def project_version() -> str:
    """The version in pyproject.toml."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def device_name(device: str) -> str:
    """Model of the GPU or CPU."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def slug(name: str) -> str:
    """Lower-case letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def results_file(benchmark: str, device: str, asked: Path | None) -> Path:
    """Of a benchmark on a device of this name. asked: a file, or a folder; None is bench/results."""
    out = asked or RESULTS
    return out / f"{benchmark}-{slug(device)}.csv" if out.is_dir() or not out.suffix else out


def write_csv(rows: Sequence[Row], columns: Sequence[str], path: Path) -> None:
    """Write judged rows, floats to five significant digits, empty where there is no value, and their `origin`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*columns, *ORIGIN], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            values = {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()}
            writer.writerow({**values, **origin()})


def aligned(lines: Sequence[Sequence[str]], *, left: Sequence[str]) -> str:
    """lines: of cells, the header first. left: columns that are not numbers."""
    header = lines[0]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if name in left else cell.rjust(width)
            for name, cell, width in zip(header, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def mark(row: Row, prefix: str = "") -> str:
    """A target as `measured/limit verdict`."""
    if row[f"{prefix}verdict"] is None:
        return ""
    return f"{row[f'{prefix}measured']:.3f}/{row[f'{prefix}limit']:.3f} {row[f'{prefix}verdict']}"
