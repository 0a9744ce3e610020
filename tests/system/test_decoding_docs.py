"""docs/decoding.md: its commands compose and run."""

import json
import re
import shlex

import pytest

from pipeline.config import ROOT
from pipeline.translate import load_translate
from tests.system.place import run

TEXT = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
COMMANDS = re.search(r"```bash\n(.*?)```", TEXT, re.DOTALL)[1].splitlines()


def test_the_commands_compose():
    asked = []
    for command in COMMANDS:
        words = dict(
            word.split("=", 1) for word in shlex.split(command) if word.startswith(("NAME=", "PAIR=", "ARGS="))
        )
        found = load_translate([f"run={words['NAME']}", f"pair={words['PAIR']}", *words["ARGS"].split()])
        asked.append({key: value for key, value in found.decode.items() if value is not None})
    assert asked == [{"beam": 1}, {"search": "sample", "n_best": 3}]


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
        done = run(["bash", "-c", line], timeout=120)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)
    assert (tmp_path / "out.en").read_text(encoding="utf-8").strip()
    assert answers[1] == answers[2]
    alternatives = json.loads(answers[1])["alternatives"]
    assert len({each["text"] for each in alternatives}) == 3
