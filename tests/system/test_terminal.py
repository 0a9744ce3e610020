"""`make train` on a terminal, on a tiny corpus: Ctrl-C while it trains, the same command again, and once more."""

import os
import re
import signal
import subprocess
import time

import pytest

from pipeline.config import ROOT
from pipeline.dag.steps import DATA_STEPS
from tests.screens import Screen
from tests.system.place import Place, run

ROWS = {"train": 500, "dev": 20, "test": 12}
SMALL = (
    *("vocab.source_size=500", "vocab.target_size=400", "model.dim=32", "model.ffn_dim=64", "model.heads=2"),
    *("model.moe.expert_dim=64", "train.max_tokens=15000", "train.validate_every=10", "decode.beam=1"),
    "baselines.tiers=[{up_to:0,vocab:{source_size:400,target_size:400},train:{max_tokens:8000}}]",
    *("score.resamples=100", "runtime.wandb=disabled", "name=tiny"),
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A function that gives the words of a command on the first rows of the sample's German and Turkish."""
    place = Place(tmp_path_factory.mktemp("terminal"))
    corpus = place.root / "corpus"
    corpus.mkdir()
    for split, count in ROWS.items():
        header, *lines = (ROOT / "data" / "sample" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        codes, rows = header.split("\t"), [line.split("\t") for line in lines]
        for code in ("de", "tr"):
            column, english = codes.index(code), codes.index("en")
            pairs = [(row[column], row[english]) for row in rows if row[column] and row[english]][:count]
            for side, texts in zip((code, "en"), zip(*pairs, strict=True), strict=True):
                (corpus / f"{split}.{code}-en.{side}").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return lambda target: place.python(target, "recipes=smoke", f"corpus={corpus}", *SMALL)


def on_terminal(command, *, stop_at=""):
    """The exit code and the screen of a command. stop_at: text after which it gets Ctrl-C."""
    screen = Screen(80, 40)
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=screen.theirs, stderr=screen.theirs)
    os.close(screen.theirs)
    deadline = time.monotonic() + 120
    while stop_at and stop_at not in screen.text:
        assert process.poll() is None, screen.text
        assert time.monotonic() < deadline, screen.text
        time.sleep(0.1)
    if stop_at:
        process.send_signal(signal.SIGINT)
    code = process.wait(600)
    screen.close()
    return code, screen


def test_one_line_a_step_and_the_result(tiny):
    code, screen = on_terminal(tiny("train"), stop_at="[5/10] train: ")
    rows = screen.rows()
    assert code == 130, screen.text
    assert rows[:4] == [
        "tiny: recipe smoke, all language pairs of the corpus",
        "model: MoE Transformer, 4 experts, 95.4 k parameters, 79.0 k of them active for",
        "  a token",
        "where: this machine, 2 CPU cores; 2 processes of 1 thread each".replace("2 CPU", f"{os.cpu_count()} CPU"),
    ]
    assert "pair tr-en: only 20 dev rows (kept of read: train 499 of 500, dev 20 of 20, test 12 of 12)" in rows
    steps = [re.sub(r": .*", "", row) for row in rows if row.startswith("[")]
    assert steps == ["[1/10] fetch", "[2/10] clean", "[3/10] vocab", "[4/10] encode", "[5/10] train"]
    assert rows[-2].startswith("[5/10] train: stopped ")
    assert rows[-1] == "stopped; the same command goes on from here"

    code, screen = on_terminal(tiny("train"))
    rows = screen.rows()
    assert code == 0, screen.text
    steps = [re.sub(r"\d+ (s|min)", "0 s", row) for row in rows if row.startswith("[")]
    assert steps[:5] == [
        *(f"[{number}/10] {name}: up to date" for number, name in enumerate(DATA_STEPS[:-1], 1)),
        ("[5/10] train: 0 s"),
    ]
    later = ("translate", "routing", "baselines", "score", "report")
    assert [row.partition(": ")[0] for row in steps[5:]] == [f"[{n}/10] {name}" for n, name in enumerate(later, 6)]
    assert "left in all, until " in screen.text
    end = "\n".join(rows[rows.index(next(row for row in rows if row.startswith("[10/10]"))) :])
    assert re.search(r"^Mean BLEU [\d.]+ over 2 language pairs, ", end, re.MULTILINE)
    assert re.search(r"^de-en +499 +\d+\.\d +\d+\.\d +\S+ +(better|worse|no)$", end, re.MULTILINE)
    assert re.search(r"^(\d+ min )?\d+ s; report: .*/runs/tiny/report.html$", end, re.MULTILINE)
    commands = end.partition("next:\n")[2].splitlines()
    assert [re.sub(r" ARGS='[^']*'| /.*/", "", command) for command in commands] == [
        "  python3 -m webbrowserreport.html",
        "  make -s translate NAME=tiny PAIR=de-en  # type text",
        "  make serve NAME=tiny  # the same in a browser",
    ]
    translate = commands[1].replace("  # type text", "").split(" ", 2)[2]
    output = subprocess.run(translate, shell=True, cwd=ROOT, input="Hallo Welt.\n", capture_output=True, text=True)
    assert (output.returncode, output.stdout.count("\n")) == (0, 1), output.stderr

    process = run(tiny("train"), timeout=60)
    assert (process.returncode, "\r" in process.stderr, "\x1b" in process.stderr + process.stdout) == (0, False, False)
    assert process.stderr.splitlines()[-1] == "nothing to do: all 26 stages are up to date"
    assert process.stdout.splitlines()[1].startswith("Mean BLEU ")

    code, screen = on_terminal(tiny("data"))
    assert code == 0, screen.text
    assert [row for row in screen.rows() if row.startswith("[")][-1].startswith("[5/5] data: ")
