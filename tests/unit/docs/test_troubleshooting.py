"""docs/troubleshooting.md: its messages are those of the code, and every exception class is in it."""

import ast
import re

import pytest

from pipeline.config import ROOT

TEXT = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SOURCES = sorted([*ROOT.glob("pipeline/**/*.py"), *ROOT.glob("eval/**/*.py")])
JOINED = re.sub(r"\"\s*\n\s*f?\"", "", "\n".join(path.read_text(encoding="utf-8") for path in SOURCES))
LITERAL = re.sub(r"\{[^{}\n]*\}", "{}", JOINED)  # values are holes
MESSAGES = [
    message
    for line in TEXT.split("## Is my setting wrong?")[1].split("## Which exceptions")[0].splitlines()
    if line.startswith("| `")
    for message in re.findall(r"`([^`]+)`", line.split(" | ")[0])
]
ROOTS = {"Exception", "BaseException"}


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_is_in_the_code(message):
    parts = [part.strip(" ,;:()") for part in message.split("…")]
    missing = [part for part in parts if len(part) > 2 and part not in LITERAL]
    assert not missing


def test_every_exception_class_has_a_row():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    raised = {c.name for c in classes if {b.id for b in c.bases if isinstance(b, ast.Name)} & ROOTS}
    raised |= {"ValueError", "OSError", "TimeoutError"}
    documented = set(re.findall(r"^\| `(\w+)` \|", TEXT.split("## Which exceptions")[1], re.MULTILINE))
    assert documented == {name for name in raised if not name.startswith("_")}
