"""docs/backtranslation.md: its commands are those that there are, and do what it says."""

import re
import shlex

from pipeline.commands.backtranslate import load_backtranslation
from pipeline.config import ROOT, load_config
from tests.make import words_of
from tests.system.place import run

TEXT = (ROOT / "docs" / "backtranslation.md").read_text(encoding="utf-8")
BLOCKS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
COMMANDS = [*BLOCKS, *re.findall(r"`(make [a-z]+ [^`]*=[^`]*)`", TEXT)]
TINY = [
    "train.max_tokens=6000",
    "train.warmup_steps=2",
    "decode.beam=1",
    "decode.max_length_ratio=0.5",
    "score.resamples=100",
    "baselines.tiers=[{up_to: 0, train: {max_tokens: 3000}}]",
]


def test_the_commands_compose():
    makes = [command for command in COMMANDS if command.startswith("make ")]
    assert len(makes) == 4
    settings = {}
    for command in makes:
        target, words = words_of(command)
        if target == "train":
            config = load_config(words)
            settings[config.name] = config.corpus.add
        else:
            back = load_backtranslation(words)
    assert back.run in settings
    assert settings == {"backtranslation_reverse": [], "backtranslation": [back.out], "without": []}


def test_settings_of_the_table_exist():
    words = words_of(next(command for command in COMMANDS if "backtranslate " in command))[1]
    named = re.findall(r"`([a-z._]+=[\w]+)`", TEXT.split("\n| | |\n")[1].split("\n\n")[0])
    assert len(named) == 5
    for setting in named:
        load_backtranslation([*words, setting])


def test_the_commands_run(tmp_path):
    for command in BLOCKS:
        line = re.sub(r"\bcorpora\b", f"{tmp_path}/corpora", command)
        if line.startswith("make "):
            settings = [
                *(TINY if line.startswith("make train") else TINY[2:4]),
                f"runtime.artifacts={tmp_path}/artifacts",
            ]
            settings += [f"runtime.runs={tmp_path}/runs"]
            if line.endswith("=backtranslation"):
                settings += [f"corpus.add=[{tmp_path}/corpora/backtranslated]"]
            line += f" ARGS={shlex.quote(' '.join(map(shlex.quote, settings)))}"
        process = run(["bash", "-c", line], timeout=600)
        assert process.returncode == 0, process.stderr
    assert "backtranslated-backtranslation_reverse" in (tmp_path / "runs/backtranslation/run.json").read_text()
