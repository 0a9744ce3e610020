import shlex

import pytest

from pipeline.commands.train import finished_run_words
from pipeline.config import load_config


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (['name="my run"'], ["NAME=my run"]),
        (
            ["name=a", 'runtime.runs="my runs"', "runtime.artifacts=/x"],
            ["NAME=a", "ARGS=runtime.artifacts=/x 'runtime.runs=my runs'"],
        ),
    ],
)
def test_the_next_commands_name_the_run_and_its_directories(overrides, words):
    assert shlex.split(finished_run_words(load_config(overrides))) == words
