"""Decoding by real processes: translations depend neither on batches nor on processes, and no process hangs."""

import json
import re
import time
from functools import partial
from pathlib import Path

import pytest

from pipeline.corpus.bitext import read_column
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job import starter
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import make_shards
from pipeline.decode.job.starter import run_job
from pipeline.jobs.hosts import launch_job
from pipeline.jobs.launch import JobFailed, launch
from pipeline.model.config import MoEConfig
from pipeline.stopping import Stopped
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import make_job
from tests.parallel.logical_checkpoint import write_checkpoints
from tests.unit.model.test_transformer import small

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("processes", "ep"),
    [(2, 2), (4, 4), (4, 2)],
)
def test_processes_that_share_experts_translate_as_one_does(prepared, tmp_path, monkeypatch, processes, ep):
    """No choice of an expert is lost, whatever the batches, also fewer than processes.

    Each process loads its own experts only. All end together when one is asked to stop.
    """
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
    report = json.loads((tmp_path / "report.json").read_text())
    differences = report["differences"]
    for name, difference in differences.items():
        assert difference["other"] == [], name
        assert difference["score"] < (1e-4 if name == "float32" else 1e-12), name
        assert difference["routed"] == difference["routed by one"], name
        choices = 2 * report["source tokens"]  # two experts for each
        assert (sum(difference["routed"]["encoder.2"]) == choices) == ("capacity" not in name), name
        assert sum(difference["routed"]["decoder.2"]) > 200, name
    assert differences["one batch"]["idle"] == processes - 1
    assert differences["one in a batch"]["idle"] == 0
    for load in report["loads"]:
        assert load["wrong"] == []
        assert load["tensors"] > 40
        assert 0.98 / ep < load["kept"] < 1 / ep + 0.3  # the rest is modules and dense weights
        assert load["peak"] < 2 / ep + 0.3  # the peak includes pages of the file, which the system can drop


def decoding_job(prepared, out, rounds, *, checkpoints, processes, ep, decode=None, max_source_tokens=0, **runtime):
    """Return a job that translates shards into English."""
    training = make_job(prepared, out, processes=processes, ep=ep, runtime=runtime)
    values = {"beam": 4, "length_penalty": 1.0, "max_length_ratio": 0.5, "max_length_extra": 4, **(decode or {})}
    return TranslateJob(
        title="translate",
        rounds=rounds,
        max_source_tokens=max_source_tokens,
        long="skip" if max_source_tokens else "whole",
        vocabulary=prepared.vocabulary,
        checkpoints=str(checkpoints),
        log=str(out / "log"),
        decode=DecodeConfig(**values),
        runtime=training.runtime,
    )


def translations(job):
    """Run a job, and return the best hypothesis and its score by shard and row."""
    run_job(job)
    shards = [shard for shards in job.rounds for shard in shards]
    return {
        (number, row): (record.get("text", ""), record.get("score", 0.0))
        for number, shard in enumerate(shards)
        for row, record in shard.records().items()
    }


def every_nth(prepared, out, n):
    """Return one round with every n-th test sentence of both pairs."""
    return [
        make_shards(out / pair, read_column(Path(bitext), "test", "src")[::n], target="en")[0]
        for pair, bitext in zip(prepared.pairs, prepared.bitexts, strict=True)
    ]


def disagreements(actual, expected):
    """Return the sentences with another translation. All scores must be equal but for rounding."""
    assert actual.keys() == expected.keys()
    for key, (_, score) in expected.items():
        assert actual[key][1] == pytest.approx(score, abs=1e-4), key
    return [key for key in expected if actual[key][0] != expected[key][0]]


@pytest.fixture(scope="module")
def checkpoints(prepared, tmp_path_factory):
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    return write_checkpoints(tmp_path_factory.mktemp("untrained"), small(num_experts=4, dim=32), vocabulary)


def test_a_job_with_cut_experts_ends_with_the_error_of_any_process(checkpoints, prepared, tmp_path, capfd, monkeypatch):
    """When its cause is removed, the job translates as processes with whole models do."""
    settings = {"batch_tokens": 512, "capacity_factor": 4}
    job = partial(decoding_job, prepared, checkpoints=checkpoints, decode=settings, processes=2, ep=2)
    round_ = every_nth(prepared, tmp_path / "cut", 20)
    cut = job(tmp_path / "cut", [round_], decode_experts="sharded")
    obstacle = round_[0].part(1)

    def launch_with_obstacle(*arguments, **settings):
        obstacle.mkdir()
        launch_job(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(starter, "launch_job", launch_with_obstacle)
        with pytest.raises(JobFailed, match=r"translate: process 1 of 2 failed: .*Is a directory"):
            translations(cut)
    assert time.time() - (tmp_path / "cut" / "log" / "rank-1.error").stat().st_mtime < 15
    obstacle.rmdir()
    actual = translations(cut)
    counts = [json.loads((tmp_path / "cut" / "log" / f"rank-{rank}.drops").read_text()) for rank in range(2)]
    assert all(count["asked"] == count["kept"] > 0 for count in counts)  # the capacity has room for all
    log = capfd.readouterr().err
    assert re.search(r"experts while decoding: cut over 2 processes; 2 x .* GB of weights .* GB free \(uncut ", log)
    expected = translations(job(tmp_path / "whole", [every_nth(prepared, tmp_path / "whole", 20)]))
    assert "experts while decoding: all in every process; 2 x " in capfd.readouterr().err
    assert len(expected) == 2 * 15
    assert len({text for text, _ in expected.values()}) > 15
    assert disagreements(actual, expected) == []


LINES = {  # processes, ep, tokens of a batch, True for backwards
    "one process": (1, 1, 8192, False),
    "other batches": (1, 1, 1000, True),
    "two": (2, 1, 3000, False),
    "three": (3, 1, 8192, True),
    "experts cut over two": (2, 2, 2000, False),
    "experts cut over four": (4, 4, 8192, True),
    "experts cut twice over two": (4, 2, 500, False),
}


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_lines_are_translated_alike_by_any_processes_in_any_order(checkpoints, prepared, tmp_path, precision):
    texts = [line for bitext in prepared.bitexts for line in read_column(Path(bitext), "train", "src")][:1200]
    assert len(texts) == 1200
    outcomes = {
        name: lines(texts, checkpoints, prepared, tmp_path / name, precision, *at) for name, at in LINES.items()
    }
    expected = outcomes.pop("one process")
    assert len({text for text, _ in expected.values()}) > 600
    for name, actual in outcomes.items():
        different = disagreements(actual, expected)
        print(f"{precision}, {name}: {len(different)} of {len(texts)} differ")
        assert len(different) <= (0.002 * len(texts) if precision == "fp32" else 0), name


def lines(texts, checkpoints, prepared, out, precision, processes, ep, batch_tokens, backwards):
    """Return translation and score by line."""
    order = range(len(texts))[:: -1 if backwards else 1]
    job = decoding_job(
        prepared,
        out,
        [make_shards(out, (texts[number] for number in order), target="en")],
        checkpoints=checkpoints,
        processes=processes,
        ep=ep,
        decode={"batch_tokens": batch_tokens, "precision": precision},
        max_source_tokens=96,
        decode_experts="sharded" if ep > 1 else "auto",
    )
    records = translations(job)
    return {number: records[0, row] for row, number in enumerate(order)}
