"""The part of the house's English that a program can check: docstrings are sentences, and names have a noun."""

import ast
from pathlib import Path

import pytest

from pipeline.config import ROOT

FOLDERS = ("pipeline", "eval", "bench", "data", "docs", "tests")
OPENINGS = {"Of", "What", "Whether", "How", "In", "By"}
WITHOUT_NOUN = {
    *("asked", "begun", "both", "done", "each", "found", "given", "got", "held", "known", "made", "mine", "of"),
    *("others", "ours", "said", "seen", "shown", "taken", "theirs", "these", "those", "told", "wanted"),
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def faults(source: str) -> list[str]:
    """Return the faults of a module, each with its line."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED):
            opening = (ast.get_docstring(node) or "-").split()[0].rstrip(",:")
            if opening in OPENINGS:
                lines.append(f"line {getattr(node, 'lineno', 1)}: a docstring begins with {opening}")
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ""
        name = node.arg if isinstance(node, ast.arg) else name
        if name.strip("_") in WITHOUT_NOUN:
            lines.append(f"line {node.lineno}: {name} has no noun")
    return lines


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('"""Of each group by name."""', "line 1: a docstring begins with Of"),
        ('def f():\n    """Whether it ended."""', "line 1: a docstring begins with Whether"),
        ("def f(asked):\n    pass", "line 1: asked has no noun"),
        ("x = 1\nfor each in y:\n    pass", "line 2: each has no noun"),
        ("class A:\n    held: int = 0", "line 2: held has no noun"),
        ("[_found for _found in y]", "line 1: _found has no noun"),
    ],
)
def test_faults_are_seen(source, fault):
    assert fault in faults(source)


def test_sentences_and_nouns_have_no_fault():
    assert faults('def load(path):\n    """Return the checkpoint."""\n    checkpoint = read(path)') == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_free_of_them(folder):
    files = sorted(Path(ROOT, folder).rglob("*.py"))
    assert files
    by_file = {str(file.relative_to(ROOT)): faults(file.read_text(encoding="utf-8")) for file in files}
    assert {name: lines for name, lines in by_file.items() if lines} == {}
