"""docs/export.md: its commands are those that there are."""

import re
from dataclasses import replace

from pipeline.commands.translate import load_translate
from pipeline.config import ROOT, load_config
from pipeline.export.config import load_export
from pipeline.export.exportable import check_huggingface
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
COMMANDS = re.search(r"```bash\n(.*?)```", TEXT, re.DOTALL)[1].splitlines()


def test_the_commands_and_keys_compose():
    configs = [load_export(overrides_of("export", command)) for command in COMMANDS]
    assert [(config.run, config.format) for config in configs] == [
        ("export_moe", "huggingface"),
        ("export_dense", "huggingface"),
        ("export_dense", "ctranslate2"),
    ]
    for config in configs:
        assert (ROOT / "recipes" / f"{config.run}.yaml").is_file()
    keys = re.findall(r"`(?:ARGS=\")?((?:target|decode\.\w+)=\w+)\"?`", TEXT)
    assert keys == ["decode.average=3", "target=de", "decode.beam=5", "decode.average=1"]
    load_export([*overrides_of("export", COMMANDS[0]), *keys])


def test_the_translations_to_compare_with_are_divided_as_in_transformers():
    (command,) = re.findall(r"`(make translate .*?)`", TEXT)
    config = load_translate(overrides_of("translate", command))
    assert (config.run, config.pair) == ("export_moe", "de-en")
    assert config.decode["length_norm"] == "power"


def test_the_commands_for_one_pair_compose():
    """And the run that they name is the one that docs/moe.md trains."""
    commands = re.findall(r"make export .*PAIR=.*", TEXT)
    configs = [load_export(overrides_of("export", command)) for command in commands]
    assert [(config.run, config.pairs, config.format) for config in configs] == [
        ("tasks", ["de-en"], "huggingface"),
        ("tasks", ["de-en"], "ctranslate2"),
    ]
    page = (ROOT / "docs" / "moe.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"make train .*NAME=tasks .*", page)
    run = load_config(overrides_of("train", command))
    moe = run.model.moe.with_pairs([pair.replace("-", ":") for pair in run.pairs])
    assert (moe.gate.kind, moe.gate.k, len(moe.gate.tasks)) == ("task", 2, len(run.pairs))
    assert configs[0].pairs[0] in run.pairs
    assert moe.gate.k * moe.expert_dim == run.model.ffn_dim == 1024
    check_huggingface(replace(run.model, moe=replace(moe, num_experts=0)), shared=run.vocab.shared)


def test_versions_are_those_that_are_tested():
    locks = "".join((ROOT / "bench" / name).read_text() for name in ("requirements.lock", "transformers5.lock"))
    assert "ctranslate2==4.8.5" in TEXT
    for pin in ("ctranslate2==4.8.5", "transformers==4.57.1", "transformers==5.23.0"):
        assert pin in locks
