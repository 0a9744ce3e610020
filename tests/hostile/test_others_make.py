"""Values of make's settings are text, which no shell and no make runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from pipeline.commands.table import COMMANDS, find_command
from tests.conftest import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OF_COMMANDS = set(re.search(r"^SETTINGS := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)[1].replace("\\", " ").split())
SETTINGS = OF_COMMANDS | set(re.search(r"^TEXTS := \$\(SETTINGS\) (.*)$", MAKEFILE, re.MULTILINE)[1].split())
ATTACKS = [
    "x'; touch MARK; '",
    'x"; touch MARK; "',
    "$(touch MARK)",
    "$(shell touch MARK)",
    "$$(touch MARK)",
    "`touch MARK`",
    "; touch MARK",
    "& touch MARK #",
    "| touch MARK",
    "> MARK",
    "$(eval X := $(shell touch MARK))",
    "\\'; touch MARK; \\'",
    '${HOME} \\" *',
]
# For each setting a target that has it, and the override. {text}: a string of Hydra; {list}, {words}: a list;
# {switch}: 1 or 0.
PLACES = {
    "RECIPE": ("train", "recipes={value}"),
    "CORPUS": ("train", "corpus={value}"),
    "CORPUS_PATH": ("train", "corpus.path={text}"),
    "CORPUS_ADD": ("train", "corpus.add=[{list}]"),
    "LANG_PAIRS": ("data", "pairs=[{list}]"),
    "NAME": ("status", "run={text}"),
    "RUNTIME": ("serve", "runtime={value}"),
    "LAYOUT": ("config", "layout={value}"),
    "REPLACE": ("train", "{switch}"),
    "EXPERIMENT": ("sweep", "experiment={value}"),
    "EXPERTS": ("sweep", "model.moe.num_experts={list}"),
    "LAYERS": ("sweep", "layers={list}"),
    "GATE": ("sweep", "gate={list}"),
    "SEEDS": ("sweep", "train.seed={list}"),
    "LAUNCHER": ("sweep", "hydra/launcher={value}"),
    "TEXT": ("backtranslate", "text={text}"),
    "LICENCE": ("backtranslate", "licence={text}"),
    "CITATION": ("distill", "citation={text}"),
    "FROM": ("import", "source={text}"),
    "OUT": ("export", "out={text}"),
    "PAIR": ("translate", "pair={text}"),
    "KEEP": ("prune", "keep={value}"),
    "WATCH": ("status", "{switch}"),
    "HYP": ("score", "{words}"),
    "REF": ("score", "{words}"),
    "TGT": ("score", "--tgt={value}"),
    "RUNS": ("report", "{words}"),
    "FORMAT": ("export", "format={value}"),
    "DEVICES": ("plan", "devices={value}"),
    "DEVICE": ("plan", "device={value}"),
    "MP": ("plan", "mp={value}"),
    "EP": ("plan", "ep={value}"),
    "ZERO": ("plan", "zero_stage={value}"),
    "RECOMPUTE": ("plan", "recompute={value}"),
    "SEARCH": ("plan", "{switch}"),
    "VERBOSE": ("train", "{switch}"),
    "DRY": ("remove", "{switch}"),
    "UNUSED": ("remove", "{switch}"),
}


def text(value):
    """Return a value in double quotes for Hydra, where `${` begins an interpolation."""
    return '"' + value.replace('\\"', '\\\\"').replace('"', '\\"').replace("${", "\\${") + '"'


@pytest.fixture
def make(tmp_path):
    """A function that runs a target with a program in place of Python, and returns the words of its call.

    checked=False: without the check of the words that were typed, which gets the names of settings and no values.
    """
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {tmp_path}/words\n")
    program.chmod(0o755)

    def run(*words, environment=None, checked=True):
        command = ["make", "-s", "-f", str(ROOT / "Makefile"), "-o", ".venv/.ready", f"BIN={program.parent}"]
        command += [f"PYTHON={sys.executable if checked else 'true'}", *words]
        (tmp_path / "place").mkdir(exist_ok=True)
        result = subprocess.run(command, cwd=tmp_path / "place", env=environment, capture_output=True, text=True)
        called = (tmp_path / "words").read_text().split("\0")[:-1] if (tmp_path / "words").exists() else []
        return result, called

    return run


def test_every_setting_is_tried():
    assert {*PLACES, "BENCH"} == SETTINGS  # BENCH installs packages; its test is below
    assert {name for command in COMMANDS for name in command.settings} == OF_COMMANDS
    with_default = set(re.findall(r"^([A-Z_]+) *\?=", MAKEFILE, re.MULTILINE))
    assert with_default - SETTINGS == {"ARGS", "PIP_ARGS", "PYTHON", "LONG"}  # words of a shell


@pytest.mark.parametrize("setting", PLACES)
def test_values_are_text(make, tmp_path, setting):
    mark = tmp_path / "executed"
    target, expected = PLACES[setting]
    for attack in ATTACKS:
        value = attack.replace("MARK", str(mark))
        result, called = make(target, f"{setting}={value}", checked=attack == ATTACKS[0])
        assert result.returncode == 0, result.stderr
        assert not mark.exists(), value
        if expected == "{words}":
            first = called.index({"HYP": "--hyp", "REF": "--ref", "RUNS": "report"}[setting]) + 1
            assert called[first : first + len(value.split())] == value.split()
            continue
        if expected == "{switch}":
            with pytest.raises(ValueError, match=f"^{setting}=.* is neither 1 nor 0$"):
                find_command(target).overrides(called[3:])
            continue
        listed = ",".join(value.replace(",", " ").split())
        overrides = called if target == "score" else find_command(target).overrides(called[3:])
        assert expected.format(value=value, text=text(value), list=listed) in overrides


def test_values_of_the_environment_are_text(make, tmp_path):
    mark = tmp_path / "executed"
    value = f"$(shell touch {mark})"
    _, called = make("status", environment={"PATH": "/usr/bin:/bin", "NAME": value})
    assert find_command("status").overrides(called[3:]) == [f"run={text(value)}"]
    assert not mark.exists()


def test_hydra_reads_the_text():
    parser = OverridesParser.create()
    for value in (*ATTACKS, "two words", "a,b", "[x]", "{a: b}", "no", "null", "1e3", "é"):
        output = str(parser.parse_override(f"name={text(value)}").value())
        assert output.replace("\\${", "${") == value  # OmegaConf removes that backslash


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "LANGPAIRS=de-en"], "make train has no setting LANGPAIRS; did you mean LANG_PAIRS?"),
        (["train", "NMAE=mine"], "make train has no setting NMAE; did you mean NAME"),
        (
            ["train", "EXPERTS=4"],
            'which is one of sweep; it stands for the key model.moe.num_experts, as in ARGS="model',
        ),
        (["plan", "NAME=x"], "make plan has no setting NAME, which is one of train"),
        (["score", "HYP=a", "REF=b", "TGT=de", "PAIR=de-en"], "make score has no setting PAIR"),
        (["report", "RUNS=a", "HYP=b"], "make report has no setting HYP; make report has RUNS, NAME"),
        (["check", "ARGS=x"], "make check has no setting ARGS"),
        (["LANG_PAIRS=de-en"], "make help has no setting LANG_PAIRS"),
        (["train", "x';>MARK;'=1"], "make train has no setting x';>"),
    ],
)
def test_a_variable_that_the_target_does_not_read_is_an_error_before_anything_runs(make, tmp_path, words, message):
    mark = tmp_path / "executed"
    result, called = make(*(word.replace("MARK", str(mark)) for word in words))
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr.splitlines()[0]
    assert "nothing was run" in result.stderr
    assert not called
    assert not mark.exists()


def test_variables_of_make_and_of_the_environment_are_not_the_users_words(make):
    environment = {"PATH": os.environ["PATH"], "CI": "1", "CFLAGS": "-O2", "LANGPAIRS": "de-en", "KEEP": "0.5"}
    result, called = make("train", "NAME=mine", environment=environment)
    assert result.returncode == 0, result.stderr
    assert find_command("train").overrides(called[3:]) == ["recipes=demo", 'name="mine"']
    result, called = make("status", environment={**environment, "MAKEFLAGS": "s", "NAME": "theirs"})
    assert find_command("status").overrides(called[3:]) == ['run="theirs"']


def test_a_variable_that_one_of_several_targets_reads_is_no_error(make):
    result, called = make("help", "status", "NAME=mine", "--dry-run")
    assert (result.returncode, called) == (0, []), result.stderr


def test_a_make_below_make_gets_no_typed_variables():
    """`make test LONG=3/20` starts tests, which start `make train` themselves."""
    rules = f"include {ROOT}/Makefile\nbelow:\n\t@echo flags=$$MAKEFLAGS\n"
    command = ["make", "--no-print-directory", "-f-", "below", "test", "-o", "test", "LONG=1/20"]
    result = subprocess.run(command, cwd=ROOT, input=rules, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "LONG" not in result.stdout
    assert "flags=" in result.stdout


def test_files_are_no_options_and_patterns_still_match(make, tmp_path):
    (tmp_path / "place").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "place" / name).touch()
    _, called = make("score", "HYP=*.txt", "REF=--comet-model=model.ckpt", "TGT=--metric")
    assert called[3:] == ["--hyp", "a.txt", "b.txt", "--ref", "./--comet-model=model.ckpt", "--tgt=--metric"]


@pytest.mark.parametrize("setting", sorted(SETTINGS))
def test_a_line_break_is_an_error(make, tmp_path, setting):
    result, called = make("help", f"{setting}=x\ntouch {tmp_path}/executed")
    assert result.returncode == 2
    assert f"{setting} must be one line" in result.stderr
    assert not called
    assert not (tmp_path / "executed").exists()


def test_a_benchmark_is_a_word(tmp_path):
    command = ["make", "-n", "-o", ".venv/.ready", "bench", f"BENCH=moe; touch {tmp_path}/executed"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"bench/setup.sh 'moe; touch {tmp_path}/executed'\n" in output


def test_a_real_command_names_the_value(tmp_path):
    mark = tmp_path / "executed"
    value = f"x'\"; touch {mark}; $(touch {mark}) `touch {mark}` ${{HOME}}"
    settings = [f"BIN={Path(sys.executable).parent}", f"NAME={value}"]
    command = ["make", "-s", "-o", ".venv/.ready", "status", *settings]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 2
    assert value in result.stderr
    assert not mark.exists()
