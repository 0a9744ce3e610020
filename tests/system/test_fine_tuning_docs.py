"""docs/fine-tuning.md: its commands do what it says, on a few rows of the sample."""

import json
import re
import shlex

import pytest

from pipeline.config import ROOT
from tests.system.place import run

TEXT = (ROOT / "docs" / "fine-tuning.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
TINY = [
    *("vocab.source_size=600", "vocab.target_size=600"),
    *("model.dim=16", "model.ffn_dim=32", "model.heads=2", "model.moe.num_experts=2", "model.moe.expert_dim=16"),
    *("train.max_steps=2", "baselines.tiers=[]", "decode.beam=1", "decode.max_length_ratio=0.1", "score.resamples=100"),
]
ROWS = {"train": 300, "dev": 10, "test": 4}


@pytest.fixture
def corpus(tmp_path):
    """The first rows of the sample in which all four languages have a text."""
    directory = tmp_path / "corpus"
    directory.mkdir()
    for split, number in ROWS.items():
        lines = (ROOT / "data" / "sample" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        columns = lines[0].split("\t")
        rows = [dict(zip(columns, line.split("\t"), strict=True)) for line in lines[1:]]
        rows = [row for row in rows if all(row[code] for code in ("de", "fr", "tr", "en"))][:number]
        for code in ("de", "fr", "tr"):
            text = "".join(f"{row[code]}\t{row['en']}\n" for row in rows)
            (directory / f"{split}.{code}-en.tsv").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture
def make(tmp_path, corpus):
    def make(command, *settings):
        directories = (f"runtime.artifacts={tmp_path}/artifacts", f"runtime.runs={tmp_path}/runs")
        words = shlex.split(command)
        arguments = next((word for word in words if word.startswith("ARGS=")), "ARGS=")
        words = [word for word in words if word != arguments]
        arguments = " ".join([arguments, *map(shlex.quote, [*settings, *directories])])
        process = run([*words, f"CORPUS={corpus}", arguments], timeout=600)
        assert process.returncode == 0, process.stderr
        return [line.removesuffix(": running") for line in process.stderr.splitlines() if line.endswith(": running")]

    return make


def artifacts(tmp_path, name):
    record = json.loads((tmp_path / "runs" / name / "run.json").read_text(encoding="utf-8"))
    return record["systems"]["moe"][0]["artifacts"]


@pytest.mark.long
def test_the_second_command_continues_the_first_and_follows_its_changes(make, tmp_path):
    first, second = BLOCK.strip().splitlines()
    own = TINY[2:]  # the vocabulary's sizes are those of the first run
    assert "vocab moe" in make(first, *TINY)
    ran = make(second, *own)
    assert "train moe" in ran
    assert not {title for title in ran if title.startswith("vocab")}
    general, special = artifacts(tmp_path, "general"), artifacts(tmp_path, "special")
    assert special["vocabulary"] == general["vocabulary"]
    assert special["initialized_from"] == general["model"]
    assert "initialized_from" not in general
    assert make(second, *own) == []
    make(f"{first} REPLACE=1", *TINY, "train.seed=2")
    assert "train moe" in make(second, *own)
    assert artifacts(tmp_path, "special")["initialized_from"] == artifacts(tmp_path, "general")["model"]
    assert artifacts(tmp_path, "general")["model"] != general["model"]
