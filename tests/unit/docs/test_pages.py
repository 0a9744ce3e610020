"""README and docs as a whole: links, trees, the site's navigation, generated parts, sizes, names and commands."""

import importlib
import os
import re
import shlex
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import yaml

from docs import reference
from eval.records.decisive import decisive
from pipeline.commands.keys import meaning
from pipeline.commands.table import COMMANDS as TABLE
from pipeline.config import PLACE, ROOT, load_config
from pipeline.model.moe.gates.config import Top1Config, Top2Config
from pipeline.plan.config import load_plan
from pipeline.sweep.config import load_sweep
from pipeline.vocab.config import VocabConfig
from tests.make import overrides_of

OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "data/README.md", "data/freesoft38/README.md")
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in OUTSIDE}
PAGES |= {f"docs/{path.name}": path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
LOADERS = {"train": load_config, "data": load_config, "config": load_config, "sweep": load_sweep, "plan": load_plan}
TRIED = (  # pages whose commands no other test tries
    *("README.md", "CONTRIBUTING.md", "docs/first-run.md", "docs/own-data.md", "docs/scale-up.md"),
    *("docs/sizes.md", "docs/commands.md", "docs/config-keys.md", "docs/topology.md", "docs/moe.md"),
)
COMMANDS = [
    (page, line.split("  #")[0].strip())
    for page in TRIED
    for block in re.findall(r"^```bash\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
COMMANDS += [
    (page, line)
    for page in (*TRIED, "docs/training.md")
    for line in re.findall(r"`(make (?:train|data|config|sweep|plan) [^`]+)`", PAGES[page])
]


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as mkdocs and forges make them."""
    titles = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[page])):
        if ":" in link:
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(Path(page).parent / path) if path else page
        assert (ROOT / target).exists(), link
        assert not anchor or anchor in anchors(PAGES[target]), link


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 150


@pytest.mark.parametrize(("page", "least"), [("README.md", 15), ("docs/code.md", 50)])
def test_every_path_of_the_tree_exists(page, least):
    tree = next(block for block in PAGES[page].split("```")[1::2] if block.startswith(("\nMakefile", "\npipeline/")))
    paths = [line.split("  ")[0] for line in tree.strip().splitlines()]
    assert len(paths) >= least
    assert [path for path in paths if not (ROOT / path).exists()] == []
    named = re.findall(r"`((?:pipeline|eval|tests)/[\w/]+\.py)`", PAGES[page])
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_the_layers_of_the_code_page_are_those_of_the_linter():
    """Every folder of pipeline/ is in the list, in an order that import-linter holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["name"]: contract for contract in project["tool"]["importlinter"]["contracts"]}
    layers = contracts["Import direction"]["layers"]
    level = {name.removeprefix("pipeline."): n for n, layer in enumerate(layers) for name in layer.split(" | ")}
    (text,) = re.findall(r"From the highest to the lowest: (.*?)\.", PAGES["docs/code.md"], re.DOTALL)
    listed = [re.findall(r"`(\w+)`", part) for part in text.split(";")]
    assert {name for part in listed for name in part} == {
        path.parent.name for path in ROOT.glob("pipeline/*/__init__.py")
    }
    levels = [{level[name] for name in part} for part in listed]
    assert all(len(part) == 1 for part in levels)
    assert levels == sorted(levels, key=min)


def test_every_page_is_in_the_navigation_once():
    pages = [page for part in NAV for pages in part.values() for entry in pages for page in entry.values()]
    site = (ROOT / "docs" / "site_pages.py").read_text(encoding="utf-8")
    outside = dict(re.findall(r'"([\w/.]+\.md)": "([\w.-]+\.md)"', site))
    assert set(outside) == set(OUTSIDE)
    inside = {name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")}
    assert sorted(pages) == sorted(inside | set(outside.values()))
    assert [name for part in NAV for name in part] == [
        *("Start", "Guides", "Explain", "Reference", "Develop", "Troubleshooting"),
    ]


def test_a_reader_of_the_readme_finds_every_page():
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", PAGES["README.md"]))
    assert {name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")} == linked


@pytest.mark.parametrize("name", reference.PAGES)
def test_generated_parts_are_current(name):
    text = PAGES[f"docs/{name}"]
    assert reference.BLOCK.search(text)
    assert reference.rendered(text) == text, "run `python -m docs.reference`"


def test_a_cell_of_a_table_shows_code_as_it_is():
    assert reference._cell("runs/<run>|: `</s>`, <b>") == "runs/&lt;run>\\|: `</s>`, &lt;b>"


def test_every_setting_has_a_meaning():
    rows = re.findall(r"^\| (`[^`]+`) .*\| ([^|]*) \|$", PAGES["docs/config-keys.md"], re.MULTILINE)
    assert len(rows) > 200
    assert [key for key, meaning in rows if not meaning] == []


def test_meanings_come_from_docstrings_comments_and_other_classes():
    @dataclass
    class Plain:
        """A class.

        first, second: two numbers.
        third: is other: than that.
        """

        first: int
        second: int
        third: int
        fourth: int

    assert [meaning(Plain, name) for name in ("first", "second", "fourth")] == ["two numbers"] * 2 + [""]
    assert meaning(Plain, "third") == "is other: than that"
    assert meaning(Top1Config, "balance_weight") == meaning(Top2Config, "balance_weight") != ""
    assert meaning(VocabConfig, "shared").startswith("one model for both sides")


def test_sizes_are_those_of_the_recipes():
    rows = re.findall(
        r"^\| `([\w/]+)` \|[^|]*\| ([\d,]+), ([\d,]+) \| (\d+), (\d+)\+(\d+) \| (\d+) \| ([\d.]+) (\w+) \|",
        PAGES["docs/sizes.md"],
        re.MULTILINE,
    )
    assert len(rows) == 5
    units = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
    for recipe, source, target, dim, encoder, decoder, experts, tokens, unit in rows:
        config = load_config([f"recipes={recipe}"])
        vocab, model = config.vocab, config.model
        assert (f"{vocab.source_size:,}", f"{vocab.target_size:,}") == (source, target)
        assert (model.dim, model.encoder_layers, model.decoder_layers) == (int(dim), int(encoder), int(decoder))
        assert (model.moe.num_experts, config.train.max_tokens) == (int(experts), float(tokens) * units[unit])


def test_vocabularies_of_one_pair_are_those_of_the_experiment():
    rows = re.findall(r"^\| ([\d,]+)(?: or fewer| or more|) \| ([\d,]+) \|", PAGES["docs/sizes.md"], re.MULTILINE)
    baselines = load_config(["recipes=freesoft38/dense"]).baselines
    numbers = [tuple(int(cell.replace(",", "")) for cell in row) for row in rows]
    assert numbers == [(rows, baselines.tier(rows).vocab.source_size) for rows, _ in numbers]
    changes = {tier.vocab.source_size: tier.up_to for tier in reversed(baselines.tiers)}  # the least rows of each size
    assert {rows: size for size, rows in changes.items()} == dict(numbers)


def test_the_api_can_be_imported():
    for name in re.findall(r"^::: ([\w.]+)$", PAGES["docs/api.md"], re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGES["docs/api.md"], re.MULTILINE | re.DOTALL)
    exec(block, {})


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_are_real(page, line, monkeypatch):
    """Targets exist, files exist, and settings compose; a directory of one's own is the sample here."""
    words = shlex.split(line.split("| ")[-1].replace("path/to/dir", "data/sample").replace("<key>", "key"))
    if words[0] != "make":
        assert words[0].startswith((".venv/bin/python", "echo", "bench/gpu.sh", "PYTHON=")), line
        return
    words = [word for word in words if word != "-s" and not word.startswith("PIP_ARGS=")]
    if words[1] not in {command.name for command in TABLE}:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[1]}:.*##", makefile, re.MULTILINE), line
    elif words[1] in LOADERS:
        monkeypatch.chdir(ROOT)
        LOADERS[words[1]](overrides_of(words[1], shlex.join(words)))
    else:
        overrides_of(words[1], shlex.join(words))  # raises ValueError for a setting that no command has


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_commands_that_change_the_demo_have_a_name_of_their_own(page, monkeypatch):
    """A finished run is not replaced by one of other settings, and many readers have finished the demo."""
    monkeypatch.chdir(ROOT)
    demo = decisive(asdict(load_config([])))
    for line in re.findall(r"(?:^|`)(make (?:train|data)\b[^`\n]*)", PAGES[page], re.MULTILINE):
        command = line.partition("  #")[0].strip().rstrip("\\")
        if re.search(r"NAME=|RECIPE=|CORPUS=(?:path|corpora)/|…|make (?:train|data) [^A-Z]", command):
            continue
        config = asdict(load_config(overrides_of(command.split()[1], command)))
        kept = {key: value for key, value in decisive(config).items() if key not in PLACE}
        assert kept == {key: demo[key] for key in kept}, command


def test_citation_and_workflow():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    assert not {"url", "repository-code"} & set(citation)
    (workflow,) = (ROOT / ".github" / "workflows").iterdir()
    steps = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]["check"]["steps"]
    assert ".ci/run" in [step.get("run") for step in steps]
    assert " check docs\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("CHANGELOG.md", "docs/config-keys.md")])
def test_pages_use_the_common_word(page):
    """A run continues, and a setting does not affect the result."""
    text = re.sub(r"`[^`]*`", "", prose(PAGES[page]))
    rare = r"\bgo(?:es)? on (?:with|from|where|as|under|by|in)\b"
    rare += r"|\bin no (?:stage's )?key\b|\bmeans nothing to\b|\bbut for\b"
    assert re.findall(rare, text) == []


def test_the_first_run_prints_what_the_page_shows():
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pipeline").rglob("*.py"))
    for words in ("target tokens/s", "ETA ", "validation cross-entropy ", "%s: running", "%s: done in"):
        assert words in sources, words
        assert words.removeprefix("%s") in PAGES["docs/first-run.md"], words


def test_held_out_sizes_are_the_defaults():
    split = load_config([]).corpus.split
    assert f"without one, up to {split.test} sentences " in PAGES["docs/own-data.md"]
