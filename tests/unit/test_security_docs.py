"""SECURITY.md: every promise names tests, and they exist."""

import ast
import re

import pytest

from pipeline.config import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
MODEL = TEXT[TEXT.index("## Threat model") :]
HEAD = "| who | surface | what is promised (limit) | test |"
LINES = [line for line in MODEL.splitlines() if line.startswith("|")]
ROWS = [line for line in LINES if line != HEAD and not set(line) <= set("|-")]
NAMES = sorted(set(re.findall(r"`(tests/[^`:]+\.py::[^`]+)`", MODEL)))


def functions(node: ast.AST, classes: str = "") -> set[str]:
    """Names of a module's tests as pytest has them: `test_x`, `TestClass::test_x`."""
    names = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            names |= functions(child, f"{classes}{child.name}::")
        elif isinstance(child, ast.FunctionDef):
            names.add(classes + child.name)
    return names


@pytest.mark.parametrize("row", ROWS)
def test_every_promise_has_a_test(row):
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
    assert len(cells) == 4, row
    assert all(cells), row
    assert re.fullmatch(r"`tests/[^`]+\.py::\w[^`]*`(, `tests/[^`]+\.py::\w[^`]*`)*", cells[3]), cells[3]


@pytest.mark.parametrize("name", NAMES)
def test_every_test_exists(name):
    file, _, function = name.partition("::")
    assert (ROOT / file).is_file()
    assert function in functions(ast.parse((ROOT / file).read_text(encoding="utf-8")))


def test_there_are_promises_under_every_heading():
    assert MODEL.count(HEAD) == MODEL.count("\n### ") == 4
    assert len(ROWS) >= 10
    assert len(NAMES) >= 11


def test_links_and_commands_lead_somewhere():
    before = TEXT.split("::")[0]
    assert all((ROOT / path).exists() for path in re.findall(r"\b(?:docs|pipeline|tests)/[\w/.]+\w", before))
    assert 'register_profile("long"' in (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
