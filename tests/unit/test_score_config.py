"""The programs of metrics by command in the keys of stages."""

import shlex
import sys

from pipeline.config import load_config
from pipeline.dag.stages import score


def settings_of_stage(overrides):
    return score(load_config(["recipes=smoke", *overrides]), None, {}, {}, {}, {}, None).config


def test_a_changed_program_scores_anew(tmp_path):
    program = tmp_path / "metric.py"
    command = shlex.join([sys.executable, str(program)])
    overrides = ["score.metrics=[bleu,comet]", f"score.commands.comet='{command}'"]
    settings = []
    for text in ("print(1)", "print(2)", "print(1)"):
        program.write_text(text)
        settings.append(settings_of_stage(overrides))
    assert settings[0] == settings[2] != settings[1]


def test_commands_without_text_files_have_the_key_of_the_command_alone():
    overrides = ["score.metrics=[bleu,comet]", "score.commands.comet='cat -'"]
    assert "programs" not in settings_of_stage(overrides)
