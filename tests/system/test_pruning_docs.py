"""docs/pruning.md: its commands and settings are those that there are."""

import re
import shlex

from pipeline.commands.prune import load_pruning
from pipeline.commands.translate import load_translate
from pipeline.config import ROOT, load_config
from pipeline.serve.config import load_serve
from tests.make import words_of

TEXT = (ROOT / "docs" / "pruning.md").read_text(encoding="utf-8")
BLOCKS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]


def test_the_commands_compose():
    prune, translate = BLOCKS
    config = load_pruning(words_of(prune)[1])
    assert config.run in {load_config([f"recipes={config.run}"]).name}
    config_of_translate = load_translate(words_of(translate.partition(" <")[0].replace("make -s", "make"))[1])
    assert (config_of_translate.run, config_of_translate.pair, config_of_translate.experts) == (
        config.run,
        *config.pairs,
        f"{config_of_translate.pair}-{config.keep:g}",
    )
    (serve,) = re.findall(r"`(make serve [^`]+)`", TEXT)
    served = load_serve(words_of(serve)[1])
    assert (served.run, served.experts) == (config_of_translate.run, config_of_translate.experts)


def test_settings_of_the_table_are_there():
    words = words_of(BLOCKS[0])[1]
    settings = re.findall(r"^\| `([a-z_]+=[^`]+)`", TEXT, re.MULTILINE)
    assert len(settings) == 5
    for setting in settings:
        load_pruning([*words, *shlex.split(setting)])
    default = load_pruning(words)
    assert (default.metric, default.per_layer, default.evidence, default.at_least) == ("importance", True, "pair", 2)
