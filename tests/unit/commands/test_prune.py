"""`make prune` replaces another pruning only by REPLACE=1; the run is the tiny one in tests/fixtures/run-0.2.0."""

import json
import shutil

import pytest

from pipeline.commands.prune import load_pruning, prune
from pipeline.commands.table import find_command
from pipeline.config import ROOT
from pipeline.decode.experts.pruning import Pruning

FIXTURE = ROOT / "tests" / "fixtures" / "run-0.2.0"
HOW = {"keep": 1.0, "metric": "importance", "per_layer": True, "evidence": "pair", "at_least": 2}
PASSED = "artifact encode/.* is not in"  # the first thing that this run lacks for a pruning


@pytest.fixture
def place(tmp_path):
    shutil.copytree(FIXTURE / "finished", tmp_path / "artifacts")
    (tmp_path / "runs" / "old" / "pruned").mkdir(parents=True)
    shutil.copy(FIXTURE / "run.json", tmp_path / "runs" / "old")
    return tmp_path


@pytest.fixture
def command(place):
    def run(*words):
        places = [f"runtime.artifacts={place}/artifacts", f"runtime.runs={place}/runs"]
        settings = ["NAME=old", "PAIR=tr-en", "KEEP=1", *words]
        prune(load_pruning([*find_command("prune").overrides(settings), *places]))

    return run


def write(path, **changes):
    record = json.loads((FIXTURE / "run.json").read_text(encoding="utf-8"))
    model = record["systems"]["moe"][0]["artifacts"]["model"]
    values = {"run": "old", "model": model, "pairs": ["tr-en"], "how": HOW, **changes}
    path.write_text(Pruning(num_experts=2, experts={}, statistics={}, **values).to_json())
    return path.read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"how": {**HOW, "metric": "top1", "at_least": 4}},
            "metric=top1 there and importance here, at_least=4 there and",
        ),
        ({"how": {**HOW, "keep": 0.5}}, "keep=0.5 there and 1.0 here"),
        ({"how": {**HOW, "evidence": "language"}}, "evidence=language there and pair here"),
        ({"how": {**HOW, "per_layer": False}}, "per_layer=False there and True here"),
        ({"pairs": ["de-en"]}, r"PAIR=\['de-en'\] there and \['tr-en'\] here"),
        ({"model": "train/0123"}, "model=train/0123 there and train/"),  # the run has been trained again
    ],
    ids=str,
)
def test_another_pruning_is_replaced_only_on_request(place, command, changes, message):
    path = place / "runs" / "old" / "pruned" / "tr-en-1.json"
    content = write(path, **changes)
    remedy = "choose another name for this one, as ARGS=name=tr-en-1-2, or replace it by REPLACE=1"
    with pytest.raises(ValueError, match=f"tr-en-1.json is another pruning: {message}.*; {remedy}"):
        command()
    assert path.read_bytes() == content
    for words in (["REPLACE=1"], ["name=other"]):
        with pytest.raises(ValueError, match=PASSED):
            command(*words)


def test_the_same_pruning_is_made_again(place, command):
    write(place / "runs" / "old" / "pruned" / "tr-en-1.json")
    with pytest.raises(ValueError, match=PASSED):
        command()


def test_a_damaged_file_stays_unless_it_may_be_replaced(place, command):
    path = place / "runs" / "old" / "pruned" / "tr-en-1.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"is no pruning .*; make it again by `make prune` and REPLACE=1"):
        command()
    with pytest.raises(ValueError, match=PASSED):
        command("REPLACE=1")
