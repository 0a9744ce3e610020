"""docs/decoding.md: its commands compose and run."""

import json
import re
import shlex

from bench.decode.choice import parse
from pipeline.commands.evaluate import load_evaluation
from pipeline.commands.translate import load_translate
from pipeline.config import ROOT
from pipeline.decode.config import DecodeConfig
from tests.system.place import run

TEXT = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
BLOCKS = [block.splitlines() for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)]
COMMANDS = BLOCKS[0]


def test_the_commands_compose(monkeypatch):
    configs = []
    for command in [command for block in BLOCKS for command in block if "make" in command]:
        words = dict(word.split("=", 1) for word in shlex.split(command) if re.match("[A-Z]+=", word))
        if "translate" in command:
            config = load_translate([f"run={words['NAME']}", f"pair={words['PAIR']}", *words["ARGS"].split()])
        else:
            config = load_evaluation([f"run={words['NAME']}", f"corpus={words['CORPUS']}", *words["ARGS"].split()])
        configs.append({key: value for key, value in config.decode.items() if value is not None})
        DecodeConfig(**{**configs[-1], "ensemble": tuple(configs[-1].get("ensemble", ()))})
    assert configs == [
        {"beam": 1},
        {"search": "sample", "n_best": 3},
        {"beam": 8, "choose": "mbr"},
        {"search": "sample", "draws": 32, "choose": "mbr"},
        {"beam": 8, "choose": "mbr", "utility": "bleu"},
        {"beam": 8, "n_best": 8},
        {"ensemble": ["second", "third"]},
        {"ensemble": ["second"], "combine": "log_linear"},
        {"precision": "int8"},
        {"precision": "int8"},
    ]
    ((bench,),) = (block for block in BLOCKS if "bench" in block[0])
    words = shlex.split(bench)
    assert words[:3] == [".venv/bin/python", "-m", "bench.decode.choice"]
    monkeypatch.setattr("sys.argv", words[2:])
    assert (parse().names, parse().sentences) == (["demo"], 100)


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
    assert answers[1] == answers[3]
    alternatives = json.loads(answers[1])["alternatives"]
    assert len({alternative["text"] for alternative in alternatives}) == 3


def test_a_metric_of_the_user_chooses(place, results, tmp_path):
    """The block about COMET, with a metric that likes long translations."""
    (block,) = (block for block in BLOCKS if any("eval choose" in line for line in block))
    (tmp_path / "in.json").write_text('{"text": "Öffnet die Datei."}\n{"text": "Hallo"}\n', encoding="utf-8")
    metric = "import sys\nfor line in sys.stdin:\n    print(len(line.split(chr(9))[1]))\n"
    (tmp_path / "metric.py").write_text(metric, encoding="utf-8")
    for command in block:
        line = command.replace("NAME=demo", "NAME=smoke").replace('ARGS="', f'ARGS="{" ".join(place.directories)} ')
        for name in ("in.json", "translations.json", "metric.py", "out.en"):
            line = line.replace(name, str(tmp_path / name))
        process = run(["bash", "-c", line], timeout=120)
        assert process.returncode == 0, process.stderr
    answers = (tmp_path / "translations.json").read_text(encoding="utf-8").splitlines()
    longest = [max((one["text"] for one in json.loads(answer)["alternatives"]), key=len) for answer in answers]
    assert [len(line) for line in (tmp_path / "out.en").read_text(encoding="utf-8").splitlines()] == [
        len(text) for text in longest
    ]
