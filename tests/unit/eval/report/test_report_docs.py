"""The page docs/report.md: its command runs and its links exist."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
TEXT = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], "eval report dense_s1 dense_s2 moe_8e_s1 deeper=moe_8e_12l --out runs/depth"),
        (["NAME="], "eval report dense_s1 dense_s2 moe_8e_s1 deeper=moe_8e_12l --out runs/comparison"),
        (["NAME=x", "RUNS=a", "REPLACE=1"], "eval report a --out runs/x --replace=1"),
        (["NAME=", "RUNS=demo", "ARGS=--losses 3.0,2.5"], "eval report demo --losses 3.0,2.5"),
    ],
)
def test_the_command_is_that_of_eval(settings: list[str], expected: str) -> None:
    (command,) = re.findall(r"^make report .*$", TEXT, flags=re.MULTILINE)
    names, name = re.fullmatch(r'make report RUNS="(.*)" NAME=(\w+)', command).groups()  # type: ignore[union-attr]
    words = ["make", "--dry-run", "--no-print-directory", "report", f"RUNS={names}", f"NAME={name}", *settings]
    output = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert " ".join(shlex.split(output.splitlines()[-1])).endswith(f"-m {expected}")


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]*)\)", TEXT)
    assert links
    assert all((ROOT / "docs" / link.partition("#")[0]).exists() for link in links)  # "#part" is on this page
