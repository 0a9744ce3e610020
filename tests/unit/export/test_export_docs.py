"""docs/export.md: its commands are those that there are."""

import re

from pipeline.config import ROOT
from pipeline.export.config import load_export
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
    assert len(keys) == 3
    load_export([*overrides_of("export", COMMANDS[0]), *keys])


def test_versions_are_those_that_are_tested():
    locks = "".join((ROOT / "bench" / name).read_text() for name in ("requirements.lock", "transformers5.lock"))
    assert "ctranslate2==4.8.5" in TEXT
    for pin in ("ctranslate2==4.8.5", "transformers==4.57.1", "transformers==5.23.0"):
        assert pin in locks
