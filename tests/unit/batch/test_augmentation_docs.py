"""docs/augmentation.md: its kinds are those there are, and its settings are read."""

import re

import yaml

from bench.quality import augmentation
from pipeline.batch.config import AUGMENTATIONS
from pipeline.config import ROOT, load_config
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "augmentation.md").read_text(encoding="utf-8")


def test_every_kind_has_its_row():
    rows = re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(AUGMENTATIONS)


def test_the_command_and_the_recipe_say_the_same():
    (command,) = re.findall(r"^make train .*$", TEXT, re.MULTILINE)
    augment = load_config(overrides_of("train", command)).batch.augment
    (recipe,) = re.findall(r"`batch: (.*?)`", TEXT)
    assert yaml.safe_load(recipe) == {"augment": augment}
    assert set(augment) < set(AUGMENTATIONS)


def test_the_defaults_are_those_of_the_code():
    batch = load_config(["recipes=smoke"]).batch
    assert batch.augment == {}
    assert f"`batch.subword_alpha` ({batch.subword_alpha})" in TEXT
    assert f"`batch.subword_nbest={batch.subword_nbest}`" in TEXT


def test_the_benchmark_is_read(monkeypatch):
    (command,) = re.findall(r"-m bench.quality.augmentation (.*)$", TEXT, re.MULTILINE)
    (shares,) = re.findall(r"`(--augment .*?)`", TEXT)
    monkeypatch.setattr("sys.argv", ["augmentation", *command.split(), *shares.split()])
    options = augmentation.parse()
    assert (options.recipe, options.seeds) == ("demo", [1, 2])
    configs = augmentation.configurations(options)
    assert sum(map(len, configs.values())) == 4
    assert configs["with"][0].batch.augment == {"upper": 0.1, "typos": 0.2}
