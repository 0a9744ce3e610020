"""docs/decoding.md: its commands compose and run."""

import json
import re
import shlex

import pytest

from pipeline.commands.translate import load_translate
from pipeline.config import ROOT
from tests.system.place import run

TEXT = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
COMMANDS = re.search(r"```bash\n(.*?)```", TEXT, re.DOTALL)[1].splitlines()


def test_the_commands_compose():
    configs = []
    for command in COMMANDS:
        words = dict(
            word.split("=", 1) for word in shlex.split(command) if word.startswith(("NAME=", "PAIR=", "ARGS="))
        )
        config = load_translate([f"run={words['NAME']}", f"pair={words['PAIR']}", *words["ARGS"].split()])
        configs.append({key: value for key, value in config.decode.items() if value is not None})
    assert configs == [{"beam": 1}, {"search": "sample", "n_best": 3}]


@pytest.mark.long
def test_the_commands_run(place, results, tmp_path):
    """Two samples of a line are the same, and beside it other ones."""
    (tmp_path / "in.de").write_text("Öffnet die Datei.\n", encoding="utf-8")
    words = " ".join(place.directories)
    answers = []
    for command in [*COMMANDS, COMMANDS[1]]:
        line = command.replace("NAME=demo", "NAME=smoke").replace('ARGS="', f'ARGS="{words} ')
        for name in ("in.de", "out.en"):
            line = line.replace(name, str(tmp_path / name))
        process = run(["bash", "-c", line], timeout=120)
        assert process.returncode == 0, process.stderr
        answers.append(process.stdout)
    assert (tmp_path / "out.en").read_text(encoding="utf-8").strip()
    assert answers[1] == answers[2]
    alternatives = json.loads(answers[1])["alternatives"]
    assert len({alternative["text"] for alternative in alternatives}) == 3
