"""docs/extend.md: its examples are put into a copy of the repository, and there the tests that it names pass."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config import ROOT

TEXT = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
BLOCKS = re.findall(r"^```(python|yaml|html|markdown)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
PLACE = re.compile(
    r"(?:# |<!-- )([\w/.-]+): (a new file|above|below|in place of|at the end of)(?: `(.+)`)?(?: -->)?\n(.*)", re.DOTALL
)
COPIED = ("bench", "configs", "data/README.md", "docs", "eval", "pipeline", "recipes", "tests", "README.md")
COPIED += ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "Makefile", "SECURITY.md", "mkdocs.yml", "pyproject.toml")
TESTED = {  # tests that run in the copy, by an expression that selects them: a part of those that the page names
    "(cosine and not same_bits)": [
        *("model/moe/test_layer.py", "model/test_inference.py", "model/test_recompute.py", "verify/test_routes.py")
    ],
    "rmsprop": ["engine/test_optimizer_kinds.py"],
    "(bars or every_format)": ["corpus/readers/test_any_bytes.py"],
    "(gates or gate_config)": ["model/moe/test_gate_config.py", "decode/test_decoding_docs.py"],
    "metrics_are_those": ["eval/score/test_scoring_docs.py"],
    "(all_rules or readme)": ["corpus/test_data_docs.py", "corpus/test_inference.py"],
    "(self_contained and pairs0)": ["eval/report/test_page.py"],
    "test_added": ["docs/test_added.py"],
}
ADDED = """
from eval.report.page import _draw_scores
from eval.report.sections.score_points import Points
from pipeline.config import load_config
from pipeline.corpus.cleaning import clean
from pipeline.corpus.cleaning.codepoints import Texts
from pipeline.corpus.cleaning.rules import row_rules
from pipeline.corpus.languages import LangPair
import pyarrow as pa, pytest

def test_added_gate():
    assert load_config(["gate=cosine"]).model.moe.gate.kind == "cosine"
    with pytest.raises(ValueError, match="temperature=0"):
        load_config(["gate=cosine", "model.moe.gate.temperature=0"])

def test_added_rule():
    rules = load_config(["corpus.rules.min_chars=3"]).corpus.rules
    names = clean._rule_names(rules, LangPair("de", "en"))
    assert names[names.index("too_short") + 1] == "held_out"
    src, tgt = (Texts.normalized(pa.array(side)) for side in (["ja", "genau"], ["yes", "exactly"]))
    rule = row_rules(rules, LangPair("de", "en"), None)["too_short"]
    assert rule(src, tgt).tolist() == [True, False]

def test_added_recipe():
    config = load_config(["recipes=mine/small"])
    assert (config.recipe, config.model.dim, config.model.moe.num_experts) == ("mine_small", 128, 4)

def test_added_check():
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the repository with every example of the page."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        (root / name).parent.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name)  # with times, so that compiled modules stay valid
        else:
            shutil.copy2(ROOT / name, root / name)
    (root / "data/sample").symlink_to(ROOT / "data/sample")
    added = ADDED
    for _, block in BLOCKS:
        if match := PLACE.fullmatch(block):
            put(root, *match.groups())
        else:
            added += "".join(f"    {line}\n" for line in block.splitlines())
    (root / "tests/unit/docs/test_added.py").write_text(added, encoding="utf-8")
    return root


def put(root: Path, name: str, place: str, beginning: str | None, text: str) -> None:
    """Put a block into a file, beside the one line that begins so."""
    path = root / name
    if place == "a new file":
        assert not path.exists(), path
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if line.strip().startswith(beginning)]
    assert len(numbers) == 1, f"{name}: {len(numbers)} lines begin with {beginning!r}"
    first = numbers[0] + (place == "below")
    if place == "at the end of":
        first = lines.index("}\n", first)
    if re.match(r"@|class |def ", text):  # the formatter removes blank lines at the end of a block
        text += "\n\n"
    lines[first : first + (place == "in place of")] = [text]
    path.write_text("".join(lines), encoding="utf-8")


def run(root: Path, *words: str) -> str:
    """Run Python in the copy, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run([sys.executable, *words], cwd=root, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_tests_pass_with_all_examples(copy):
    run(copy, "-m", "docs.reference")
    assert "too_short" not in (ROOT / "docs/config-keys.md").read_text(encoding="utf-8")
    assert "corpus.rules.min_chars" in (copy / "docs/config-keys.md").read_text(encoding="utf-8")
    files = [f"tests/unit/{name}" for names in TESTED.values() for name in names]
    output = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", " or ".join(TESTED), "-rA", *files)
    assert all(f"PASSED {name}::" in output for name in files)


def test_the_examples_are_clean(copy):
    names = {match[1] for _, block in BLOCKS if (match := PLACE.fullmatch(block)) and match[1].endswith(".py")}
    for words in (["check"], ["format", "--diff"]):
        run(copy, "-m", "ruff", *words, *sorted(names))


def test_every_path_and_name_exists(copy):
    """A name in code letters is one of the code, of its tests or of the settings."""
    for path in re.findall(r"((?:pipeline|eval|configs|tests|docs|bench)/[\w/.]+)", TEXT.replace("`.", "`")):
        assert (copy / path.rstrip(".")).exists(), path
    texts = [
        path.read_text(encoding="utf-8")
        for part in ("pipeline", "eval", "tests")
        for path in (copy / part).rglob("*.py")
    ]
    words = set(re.findall(r"\w+", "\n".join(texts)))
    stems = {path.name for part in ("pipeline", "eval") for path in (copy / part).rglob("*.py")}
    spans = re.findall(r"`([\w.]+)`", PROSE)
    assert len(spans) > 80
    for span in spans:
        assert span in stems or set(re.findall(r"\w+", span)) <= words, span


def test_every_stage_is_one():
    stages = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "pipeline/dag").glob("*.py"))
    table = PROSE.split("| change | stage |")[1].split("\n\n")[0]
    assert all(f"\ndef {name}(" in stages for name in re.findall(r"`(\w+)`", table))
