"""docs/translate.md: its commands are those that there are, and do what it says."""

import json
import re
from dataclasses import asdict

from pipeline.commands.translate import load_translate
from pipeline.config import ROOT
from pipeline.decode.job.replica import runtime_of_replica
from tests.make import overrides_of
from tests.system.place import run

TEXT = (ROOT / "docs" / "translate.md").read_text(encoding="utf-8")
BLOCK, TOO_LARGE = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
KEYS = re.findall(r"^\| (`.+?`) \|", TEXT, re.MULTILINE)


def test_the_commands_compose():
    commands = re.findall(r"make -s (translate [^<\n]+)", BLOCK)
    configs = [load_translate(overrides_of("translate", f"make {command}")) for command in commands]
    assert [(config.run, config.pair, config.format) for config in configs] == [
        ("demo", "de-en", "text"),
        ("demo", "de-en", "text"),
        ("demo", "de-en", "json"),
    ]
    assert configs[-1].decode["n_best"] == 2


def test_a_model_that_is_too_large_is_cut_over_as_many_processes_as_it_says():
    config = load_translate(overrides_of("translate", TOO_LARGE.partition("<")[0].replace("make -s", "make")))
    replica = runtime_of_replica(config.runtime)
    assert (replica.processes, replica.decode_experts) == (config.runtime.processes, "sharded")
    (words,) = re.findall(r"With\s+`([^`]+)` there are two such groups", TEXT)
    two = load_translate(["run=demo", "pair=de-en", *words.split()]).runtime
    assert two.processes == 2 * runtime_of_replica(two).processes


def test_the_keys_exist_and_have_the_defaults_of_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.de").touch()
    named = re.findall(r"`([a-z._]+=[\w.]+)`", "".join(KEYS))
    assert len(named) == 10
    config = load_translate(["run=demo", "pair=de-en", *named])
    assert (config.direct, config.pivot) == (True, "es")
    assert (config.format, config.input, config.output, config.runtime.processes) == ("json", "in.de", "out.en", 8)
    assert config.runtime.ep == 2
    plain = asdict(load_translate(["run=demo", "pair=de-en"]))
    assert (plain["long"], plain["errors"]) == ("split", "strict")
    assert (plain["direct"], plain["pivot"]) == (False, "")
    assert all(value is None for value in plain["decode"].values())


def test_the_commands_run(place, results, tmp_path):
    (tmp_path / "in.de").write_text("Öffnet die Datei.\n\nDie Datei konnte nicht geöffnet werden.", encoding="utf-8")
    answers = []
    for line in BLOCK.splitlines():
        words = " ".join([*place.directories, "decode.beam=2"])
        command = line.replace("NAME=demo", "NAME=smoke").replace("in.de", f"{tmp_path}/in.de")
        command = command.replace("out.en", f"{tmp_path}/out.en")
        if "ARGS" in command:
            command = command.replace('ARGS="', f'ARGS="{words} ')
        else:
            command = command.replace("make -s", f"ARGS='{words}' make -s")
        process = run(["bash", "-c", command], timeout=120)
        assert process.returncode == 0, process.stderr
        answers.append(process.stdout.split("\n"))
    one, nothing, objects = answers
    assert (len(one), nothing, len(objects)) == (2, [""], 2)
    written = (tmp_path / "out.en").read_text(encoding="utf-8").split("\n")
    assert written[1:] == ["", one[0], ""]
    answer = json.loads(objects[0])
    assert answer["text"].startswith("This")
    assert len(answer["alternatives"]) == 2
