"""docs/cleaning.md, docs/corpora.md and data/README.md list the rules, settings, names and manifests of the code."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from eval.records.funnel import RULES
from pipeline.config import ROOT, load_config
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.inference import infer_manifest
from pipeline.corpus.languages import LangPair
from pipeline.corpus.learned_config import DualCleaning, ScoreFiles
from pipeline.corpus.manifest import read_manifest
from pipeline.dag.learned_cleaning import FEW_ROWS, small_system
from pipeline.schema import build

CLEANING = (ROOT / "docs" / "cleaning.md").read_text(encoding="utf-8")
CORPORA = (ROOT / "docs" / "corpora.md").read_text(encoding="utf-8")
README = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
Make = Callable[..., Path]


def yaml_blocks(text: str) -> list[str]:
    return re.findall(r"```yaml\n([^`]*)```", text)


def test_the_page_lists_all_rules_with_their_defaults() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \| (?:`([^`]*)`)? ?\|", CLEANING[: CLEANING.index("```bash")])
    assert [name for name, _ in rows] == list(RULES)
    settings = {key: value for _, text in rows if text for key, value in yaml.safe_load(text).items()}
    assert build(Rules, settings) == Rules() == load_config([]).corpus.rules
    assert list(settings) == [*load_config([]).to_json()["corpus"]["rules"]]


def test_the_overrides_and_the_preset_of_the_cleaning_page() -> None:
    (page,) = re.findall(r"```bash\n([^`]*)```", CLEANING)
    first, second = (re.sub(r"'", "", text) for text in re.findall(r'ARGS="([^"]*)"', page))
    assert load_config(first.split()).corpus.rules.language is None
    config = load_config(re.split(r" (?=corpus)", second)).corpus
    assert config.rules.near_duplicates is not None
    assert (config.rules.near_duplicates.threshold, config.keep_removed) == (0.9, True)
    preset = yaml.safe_load(yaml_blocks(CLEANING)[0])
    assert preset.pop("defaults") == ["rules", "_self_"]
    assert build(CorpusConfig, preset, "corpus").rules.max_chars == 400


def test_the_settings_of_learned_cleaning_on_the_page() -> None:
    blocks = [yaml.safe_load(block)["corpus"] for block in yaml_blocks(CLEANING)[1:]]
    dual, files = (build(CorpusConfig, {"path": "p", **block}, "corpus").learned for block in blocks)
    assert isinstance(dual, DualCleaning)
    assert isinstance(files, ScoreFiles)
    assert [dual.share(pair) for pair in ("de-en", "tr-en", "km-en")] == [0.1, 0.2, 0.0]
    assert (files.remove, files.min_score) == (0.0, 0.5)
    (word,) = re.findall(r"`ARGS=\"'(corpus.learned=[^']*)'\"`", CLEANING)
    assert load_config([word]).corpus.learned == DualCleaning()
    columns = [yaml.safe_load(f"{{{text}}}") for text in re.findall(r"(?m)^\| .* \| `(column: [^`]*)` \|$", CLEANING)]
    assert [ScoreFiles(files=files.files, **settings).column for settings in columns] == [3, "bicleaner_ai_score", 1]
    (length,) = re.findall(r"cut at (\d+) tokens", CLEANING)
    system = small_system(LangPair("de", "en"), 0, dual, load_config([]).runtime)
    assert system.batch.max_source == system.batch.max_target == int(length)
    (few,) = re.findall(r"fewer than ([\d,]+) rows are a warning", CLEANING)
    assert int(few.replace(",", "")) == FEW_ROWS


@pytest.mark.parametrize("names", re.findall(r"(?m)^\| (`[^|/]*`) \|", README[: README.index("Each but Parquet")]))
def test_names_of_files_that_need_nothing_else(names: str, make_corpus: Make) -> None:
    for name in re.findall(r"`([^`]*)`", names.replace("` + `", " + ")):
        (entry,) = infer_manifest(make_corpus(dict.fromkeys(name.split(" + "), ""), name)).files
        assert entry.split == "train"
        assert entry.pair is None or entry.pair.name == "de-en"


@pytest.mark.parametrize("text", [*yaml_blocks(README), *(f"name: x\n{text}" for text in yaml_blocks(CORPORA))])
def test_manifests_of_the_pages_are_read(text: str, make_corpus: Make) -> None:
    assert read_manifest(make_corpus({"manifest.yaml": text})).files


def test_the_page_lists_all_presets() -> None:
    presets = {path.stem for path in (ROOT / "configs" / "corpus").glob("*.yaml")} - {"sample"}
    table = CORPORA[CORPORA.index("| preset |") : CORPORA.index("`flores-200`, `tatoeba_mt`")]
    named = {name for row in re.findall(r"(?m)^\| (`.*?`) \|", table) for name in re.findall(r"`([^`]*)`", row)}
    assert named == presets
