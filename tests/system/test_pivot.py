"""Directions that a run was not trained on, translated and scored in one step and in two, by a small imported model."""

import json
import re

import pytest

from eval.records.scores import load_scores
from pipeline.commands.evaluate import evaluate, load_evaluation
from pipeline.commands.translate import load_translate, translate
from tests.tiny_checkpoints import CONFIGS, run_import, train_tokenizer, write_checkpoint

ROWS = ["the window", "a file", "", "open the lazy dog", "the quick brown fox jumps over the lazy dog"]
SHORT = ["decode.beam=1", "decode.max_length_ratio=1", "decode.max_length_extra=1", "runtime.processes=1"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The run `mine`, of de-en and en-zh-Hans, and a multi-way test set."""
    root = tmp_path_factory.mktemp("pivot")
    write_checkpoint(root / "checkpoint", CONFIGS["dense"], train_tokenizer(root / "spm"))
    run_import(root / "checkpoint", pairs="de-en,en:zh-Hans")
    (root / "news").mkdir()
    rows = [["de", "en", "zh-Hans"], *([text] * 3 for text in ROWS if text)]
    (root / "news" / "test.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def place(root):
    return [f"runtime.artifacts={root}/artifacts", f"runtime.runs={root}/runs"]


@pytest.fixture
def answers(root, place, tmp_path):
    """Return a function that translates lines, and returns the lines of the output."""

    def answers(lines, *words):
        (tmp_path / "in").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        files = [f"input={tmp_path}/in", f"output={tmp_path}/out"]
        translate(load_translate(["run=mine", *files, *SHORT, *words, *place]))
        return (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1]

    return answers


def test_two_steps_are_the_two_commands_in_one(answers):
    english = answers(ROWS, "pair=de-en")
    chinese = answers(english, "pair=en:zh-Hans")
    assert answers(ROWS, "pair=de:zh-Hans") == chinese
    assert len({*chinese}) > 1
    lines = [
        json.loads(line)
        for line in answers([json.dumps({"text": row}) for row in ROWS], "pair=de:zh-Hans", "format=json")
    ]
    assert [line["text"] for line in lines] == chinese
    assert [line.get("pivot", "") for line in lines] == english
    assert "pivot" not in lines[2]  # it is empty
    one_step = answers(ROWS, "pair=de:zh-Hans", "direct=true")
    assert one_step != chinese
    assert one_step[2] == ""


def test_an_untrained_direction_is_scored_in_one_step_and_in_two(root, place, answers, capsys):
    words = ["run=mine", f"corpus={root}/news", "pairs=[de:zh-Hans,de-en]", "resamples=100", "runtime.ep=1"]
    words += [*SHORT, *place]
    (directory,) = evaluate(load_evaluation(words))
    table = capsys.readouterr().out
    scores = {(row.pair, row.system) for row in load_scores(directory / "scores.csv")}
    assert scores == {("de-en", "moe"), ("de-zh-Hans", "moe"), ("de-zh-Hans", "pivot")}
    assert "BLEU multilingual" in table
    assert "BLEU in two steps" in table
    assert re.search(r"^pair +system +wrong language +of references +any fault +of references$", table, re.MULTILINE)
    assert re.search(r"^de-zh-Hans +in two steps +\S+", table, re.MULTILINE)
    sources = [row for row in ROWS if row]
    for system, words in (("moe", ["direct=true"]), ("pivot", [])):
        text = (directory / "translations" / system / "de-zh-Hans.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["source"] for line in lines] == sources
        assert [line["hypothesis"] for line in lines] == answers(sources, "pair=de:zh-Hans", *words)
    assert [line["pivot"] for line in lines] == answers(sources, "pair=de-en")
    record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    assert (record["untrained"], record["translated"]["pivot"]) == (["de-zh-Hans"], ["de-zh-Hans"])


def test_a_direction_without_a_way_is_an_error_before_any_work(root, place):
    words = ["run=mine", f"corpus={root}/news", "pairs=[zh-Hans:fr]", *place]
    with pytest.raises(ValueError, match="has no 'fr'"):
        evaluate(load_evaluation(words))
