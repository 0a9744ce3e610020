"""Rules that the import linter cannot check: outside packages of each part, and the length of files."""

import ast
from pathlib import Path

from pipeline.config import ROOT

PYTHON = ("pipeline", "eval", "bench", "data", "docs", "tests")
SOURCES = sorted([*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "eval").rglob("*.py")])


def imported(file: Path):
    """Names of all imported modules, late imports too."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importers(*packages: str) -> set[str]:
    return {
        str(file.relative_to(ROOT))
        for file in SOURCES
        for name in imported(file)
        if any(name == package or name.startswith(package + ".") for package in packages)
    }


def test_one_file_imports_deepspeed():
    assert importers("deepspeed") == {"pipeline/engine/deepspeed.py"}


def test_one_file_sees_omegaconf():
    assert importers("omegaconf") == {"pipeline/config.py"}


def test_hydra_composes_in_one_file_and_sweeps_in_two():
    """Its grammar of sweeps, and its application that launches them; its grammar, to say what is wrong with a word."""
    composes, explains = "pipeline/config.py", "pipeline/composition_errors.py"
    assert importers("hydra") == {composes, explains, "pipeline/sweep/points.py", "pipeline/sweep/job.py"}


def test_the_model_imports_nothing_distributed():
    assert not {
        file for file in importers("torch.distributed") if file.startswith(("pipeline/model/", "pipeline/batch/"))
    }


def test_files_are_short():
    files = [file for folder in PYTHON for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 700
    lengths = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {name: length for name, length in lengths.items() if length > 300} == {}
