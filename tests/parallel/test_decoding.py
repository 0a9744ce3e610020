"""Decoding by real processes: translations depend neither on batches nor on who decodes them, and nobody hangs."""

import json
import re
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from pipeline.decode.config import DecodeConfig
from pipeline.decode.job import TranslateJob
from pipeline.model.config import MoEConfig
from pipeline.parallel.launch import JobFailed, launch
from pipeline.stage import Stopped
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import make_job
from tests.parallel.logical_checkpoint import write_checkpoints
from tests.unit.model.test_transformer import small

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("processes", "ep"),
    [(2, 2), pytest.param(4, 4, marks=pytest.mark.long), pytest.param(4, 2, marks=pytest.mark.long)],
)
def test_processes_that_share_experts_translate_as_one_does(prepared, tmp_path, monkeypatch, processes, ep):
    """Any batches, also fewer than processes; no choice of an expert is lost; what they load is theirs alone, and they
    end together, when one is asked to."""
    monkeypatch.chdir(ROOT)
    moe = MoEConfig(num_experts=8, expert_dim=1 << 16)
    checkpoints = write_checkpoints(
        tmp_path, small(moe=moe, decoder_layers=2), Vocabulary.load(Path(prepared.vocabulary))
    )
    job = {"ep": ep, "vocabulary": prepared.vocabulary, "checkpoints": str(checkpoints)}
    with pytest.raises(Stopped):
        launch(
            "tests.parallel.decoding_worker", job, directory=tmp_path, processes=processes, threads=1, title="decoding"
        )
    found = json.loads((tmp_path / "found.json").read_text())
    differences = found["differences"]
    for name, seen in differences.items():
        assert seen["other"] == [], name
        assert seen["score"] < (1e-4 if name == "float32" else 1e-12), name
        assert seen["routed"] == seen["routed by one"], name
        assert sum(seen["routed"]["encoder.2"]) == 2 * found["source tokens"], name  # two experts for each
        assert sum(seen["routed"]["decoder.2"]) > 200, name
    assert differences["one batch"]["idle"] == processes - 1
    assert differences["one in a batch"]["idle"] == 0
    for load in found["loads"]:
        assert load["wrong"] == []
        assert load["tensors"] > 40
        assert 1 / ep <= load["kept"] < 1 / ep + 0.3  # modules and dense weights
        assert load["peak"] < 2 / ep + 0.3  # pages of the file, which can go at any time, beside what they fill


def decoding_job(prepared, out, *, checkpoints, processes, ep, rows=range(300), decode=None, **runtime):
    """Of the test sentences `rows` of both pairs."""
    training = make_job(prepared, out, processes=processes, ep=ep, runtime=runtime)
    values = {"beam": 4, "length_penalty": 1.0, "max_length_ratio": 0.5, "max_length_extra": 4, **(decode or {})}
    return TranslateJob(
        title="translate",
        slot=0,
        pairs=prepared.pairs,
        targets=["en", "en"],
        bitexts=prepared.bitexts,
        vocabulary=prepared.vocabulary,
        checkpoints=str(checkpoints),
        out=str(out),
        done=[sorted({*range(300)} - {*rows})] * 2,
        decode=DecodeConfig(**values),
        runtime=training.runtime,
    )


def run(job):
    """Best hypothesis and its score by pair and row."""
    Path(job.out).mkdir(exist_ok=True)
    launch(
        "pipeline.decode",
        asdict(job),
        directory=Path(job.out, "log"),
        processes=job.runtime.processes,
        threads=1,
        title=job.title,
    )
    found = {}
    for pair in job.pairs:
        for file in Path(job.out).glob(f"{pair}.rank-*.jsonl"):
            for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
                found[pair, record["row"]] = record["hypothesis"], record["score"]
    return found


def disagreements(found, expected):
    """Sentences that are translated otherwise; that their scores are as good is asserted."""
    assert found.keys() == expected.keys()
    other = [key for key in expected if found[key][0] != expected[key][0]]
    assert all(abs(found[key][1] - expected[key][1]) < 1e-4 for key in expected)
    return other


@pytest.fixture(scope="module")
def checkpoints(prepared, tmp_path_factory):
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    return write_checkpoints(tmp_path_factory.mktemp("untrained"), small(num_experts=4), vocabulary)


def test_a_job_with_cut_experts_ends_with_the_error_of_any_process(checkpoints, prepared, tmp_path, capfd):
    """And then, without what was in the way, it translates as processes with whole models do."""
    rows = range(0, 300, 20)
    job = partial(decoding_job, prepared, checkpoints=checkpoints, rows=rows, decode={"batch_tokens": 512})
    cut = job(tmp_path / "cut", processes=2, ep=2, decode_experts="sharded")
    obstacle = tmp_path / "cut" / f"{prepared.pairs[0]}.rank-1.jsonl"
    obstacle.mkdir(parents=True)
    with pytest.raises(JobFailed, match=r"translate: process 1 of 2 failed: .*Is a directory"):
        run(cut)
    assert time.time() - (tmp_path / "cut" / "log" / "rank-1.error").stat().st_mtime < 15
    obstacle.rmdir()
    found = run(cut)
    said = capfd.readouterr().err
    assert re.search(r"experts while decoding: cut over 2 processes; 2 x .* GB of weights .* GB free \(uncut ", said)
    expected = run(job(tmp_path / "whole", processes=3, ep=3))
    assert "experts while decoding: all in every process; 3 x " in capfd.readouterr().err
    assert len(expected) == 2 * len(rows)
    assert disagreements(found, expected) == []
