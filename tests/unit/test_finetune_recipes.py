"""recipes/finetune: the demonstration of docs/fine-tuning.md composes, plans, and gives its systems equal budgets."""

import json
import re
from dataclasses import replace

import pytest

from pipeline.config import ROOT, load_config
from pipeline.corpus.manifest import read_manifest
from pipeline.plan.command import answer
from pipeline.plan.config import load_plan
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "fine-tuning.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(make train RECIPE=finetune/freesoft38_(\w+) .*)$", TEXT, re.MULTILINE)
NEW = ["el-en", "uk-en"]


@pytest.fixture
def configs(tmp_path):
    """The configurations of the page's commands, after the run that the second one names has finished."""
    known_run = load_config(["recipes=finetune/freesoft38_known"])
    directory = tmp_path / known_run.name
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps({"config": known_run.to_json()}), encoding="utf-8")
    return {
        name: load_config([*overrides_of("train", command), f"runtime.runs={tmp_path}"]) for command, name in COMMANDS
    }


def test_two_languages_are_added_to_the_others(configs):
    assert set(configs) == {"known", "extended", "from_start", "bilingual"}
    known_run, extended = configs["known"], configs["extended"]
    original = ROOT / "data" / "freesoft38" / "manifest.yaml"  # the rebuilt text has the same pairs
    manifest = read_manifest(ROOT, original)
    assert {config.corpus.manifest for config in configs.values()} == {"corpora/freesoft38/manifest.yaml"}
    pairs = {"-".join([*entry.columns.values()][:2]) for entry in manifest.files if entry.split == "train"}
    assert {*known_run.pairs, *NEW} == pairs
    assert len(known_run.pairs) == len(pairs) - 2 == 36
    assert extended.pairs == configs["from_start"].pairs == ["all"]
    assert configs["bilingual"].pairs == NEW
    assert extended.vocab == replace(known_run.vocab, from_run=known_run.name, extend={"el": None, "uk": None})
    assert extended.train.initialize_from == known_run.name
    assert extended.model == known_run.model == configs["from_start"].model == configs["bilingual"].model


def test_each_system_gets_the_same_budget(configs):
    (tier,) = configs["bilingual"].baselines.tiers
    trainings = [tier.train, *(configs[name].train for name in ("extended", "from_start", "bilingual"))]
    assert {train.max_tokens for train in trainings} == {4_000_000}
    assert {train.patience for train in trainings} == {0}
    assert {train.ema for train in (*trainings, configs["known"].train)} == {0}  # as in the published table
    assert configs["extended"].batch == configs["from_start"].batch
    assert configs["extended"].batch.mixture.groups["new"].pairs == NEW
    assert not any(configs[name].baselines.tiers for name in ("known", "extended", "from_start"))


@pytest.mark.parametrize("name", ["known", "extended", "from_start", "bilingual"])
def test_the_recipes_plan(name):
    values = answer(load_plan(overrides_of("plan", f"make plan RECIPE=finetune/freesoft38_{name} DEVICE=h100"))).values
    assert values["recipe"] == f"finetune/freesoft38_{name}"
    assert values["parameters"]["total"] > 1e6
