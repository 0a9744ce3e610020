"""Choice by a metric's command: the same as minimum Bayes risk decoding chooses, and what is wrong input."""

import re
import shlex
import sys

import pytest

from eval.__main__ import main
from pipeline.commands.translate import _json
from pipeline.config import ROOT
from pipeline.decode.config import DecodeConfig
from pipeline.decode.text.agreement import best_by_agreement
from pipeline.decode.text.line import Alternative, Translated

CHRF = """
import sys
from sacrebleu.metrics.chrf import CHRF

for line in sys.stdin:
    _, translation, reference = line.rstrip(chr(10)).split(chr(9))
    print(CHRF(eps_smoothing=False).sentence_score(translation, [reference]).score)
"""
TEXTS = (
    ("the house is red", "a house is red", "the houses are red", "red"),
    (),  # a skipped line
    ("one",),
    ("yes", "no"),  # a tie
    ("blue sky over it", "sky", "the blue sky", "the blue sky over it"),
)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with the sources, their translations and a program that computes chrF; the arguments that name them."""
    monkeypatch.chdir(tmp_path)
    lines = [Translated(alternatives=tuple(Alternative(text=text, score=-1.0) for text in texts)) for texts in TEXTS]
    (tmp_path / "in.json").write_text('{"text": "Haus"}\n' * len(TEXTS), encoding="utf-8")
    (tmp_path / "translations.json").write_text("".join(_json(line) + "\n" for line in lines), encoding="utf-8")
    (tmp_path / "metric.py").write_text(CHRF, encoding="utf-8")
    return ["choose", "--src=in.json", "--hyp=translations.json", f"--command={shlex.quote(sys.executable)} metric.py"]


def test_it_is_the_choice_of_mbr_where_the_metric_is_chrf(files, capsys):
    assert main(files) == 0
    config = DecodeConfig(beam=4, choose="mbr")
    expected = [texts[best_by_agreement(texts, config, "en")[0]] if texts else "" for texts in TEXTS]
    assert capsys.readouterr().out.split("\n") == [*expected, ""]
    assert [texts.index(best) for texts, best in zip(TEXTS, expected, strict=True) if texts] == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.json", '{"text": "Haus"}\n', "1 sources and 5 answers"),
        ("in.json", "Haus\n" * 5, "line 1 of the sources is no JSON: .*; translate with format=json"),
        ("in.json", "[1]\n" * 5, "line 1 of the sources is no JSON object"),
        ("in.json", '{"txt": 1}\n' * 5, 'line 1 of the sources has no "text"'),
        (
            "translations.json",
            '{"text": "a", "alternatives": ["a"]}\n' * 5,
            'line 1 of the answers has no "alternatives"',
        ),
        ("metric.py", "raise SystemExit('no model')", "ended with code 1: no model"),
    ],
)
def test_bad_input_is_one_line(files, tmp_path, capsys, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert main(files) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert re.search(message, captured.err)


def test_a_program_that_is_missing_is_named(files, capsys):
    assert main([*files[:-1], "--command=nowhere/comet"]) == 2
    assert "--command='nowhere/comet': the program nowhere/comet does not exist" in capsys.readouterr().err


def test_the_command_of_the_page_chooses_by_the_program_of_the_page(files, tmp_path, capsys):
    """That program compares lengths, and the first text has that which is nearest to the others."""
    (code,) = re.findall(
        r"```python\n(# metric\.py.*?)```", (ROOT / "docs/scoring.md").read_text(encoding="utf-8"), re.S
    )
    (tmp_path / "metric.py").write_text(code, encoding="utf-8")
    (command,) = re.findall(r"(?m)^\S+ -m eval (choose .*) > out.en$", (ROOT / "docs/decoding.md").read_text("utf-8"))
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.split("\n")[0] == "the house is red"
