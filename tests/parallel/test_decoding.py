"""Decoding by real processes: translations depend neither on batches nor on who decodes them, and nobody hangs."""

import json
import re
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.corpus.bitext import SCHEMA, iter_bitext, read_column, write_bitext
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job import LinesJob, TranslateJob
from pipeline.decode.shards import LineShard, write_lines
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
        choices = 2 * found["source tokens"]  # two experts for each
        assert (sum(seen["routed"]["encoder.2"]) == choices) == ("capacity" not in name), name
        assert sum(seen["routed"]["decoder.2"]) > 200, name
    assert differences["one batch"]["idle"] == processes - 1
    assert differences["one in a batch"]["idle"] == 0
    for load in found["loads"]:
        assert load["wrong"] == []
        assert load["tensors"] > 40
        assert 0.98 / ep < load["kept"] < 1 / ep + 0.3  # modules and dense weights
        assert load["peak"] < 2 / ep + 0.3  # pages of the file, which can go at any time, beside what they fill


def decoding_job(prepared, out, *, checkpoints, processes, ep, decode=None, **runtime):
    """Of the test sentences of both pairs."""
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
        done=[[], []],
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


def every_nth(bitext, out, n):
    """A directory with every n-th of the test sentences."""
    out.mkdir()
    rows = pa.Table.from_batches(iter_bitext(Path(bitext), "test")).to_pylist()[::n]
    write_bitext(out / "test.arrow", [pa.RecordBatch.from_pylist(rows, SCHEMA)])
    return str(out)


def disagreements(found, expected):
    """Sentences that are translated otherwise; that scores are as good is asserted."""
    assert found.keys() == expected.keys()
    for key, (_, score) in expected.items():
        assert found[key][1] == pytest.approx(score, abs=1e-4), key
    return [key for key in expected if found[key][0] != expected[key][0]]


@pytest.fixture(scope="module")
def checkpoints(prepared, tmp_path_factory):
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    return write_checkpoints(tmp_path_factory.mktemp("untrained"), small(num_experts=4, dim=32), vocabulary)


def test_a_job_with_cut_experts_ends_with_the_error_of_any_process(checkpoints, prepared, tmp_path, capfd):
    """And then, without what was in the way, it translates as processes with whole models do."""
    few = replace(
        prepared, bitexts=[every_nth(bitext, tmp_path / f"test-{n}", 20) for n, bitext in enumerate(prepared.bitexts)]
    )
    job = partial(decoding_job, few, checkpoints=checkpoints, decode={"batch_tokens": 512, "capacity_factor": 4})
    cut = job(tmp_path / "cut", processes=2, ep=2, decode_experts="sharded")
    obstacle = tmp_path / "cut" / f"{prepared.pairs[0]}.rank-1.jsonl"
    obstacle.mkdir(parents=True)
    with pytest.raises(JobFailed, match=r"translate: process 1 of 2 failed: .*Is a directory"):
        run(cut)
    assert time.time() - (tmp_path / "cut" / "log" / "rank-1.error").stat().st_mtime < 15
    obstacle.rmdir()
    found = run(cut)
    counts = [json.loads((tmp_path / "cut" / "log" / f"rank-{rank}.drops").read_text()) for rank in range(2)]
    assert all(count["asked"] == count["kept"] > 0 for count in counts)  # a capacity that has room for all
    said = capfd.readouterr().err
    assert re.search(r"experts while decoding: cut over 2 processes; 2 x .* GB of weights .* GB free \(uncut ", said)
    expected = run(job(tmp_path / "whole", processes=2, ep=2))
    assert "experts while decoding: all in every process; 2 x " in capfd.readouterr().err
    assert len(expected) == 2 * 15
    assert len({text for text, _ in expected.values()}) > 15
    assert disagreements(found, expected) == []


LINES = {  # processes, ep, tokens of a batch, whether backwards
    "one process": (1, 1, 8192, False),
    "other batches": (1, 1, 1000, True),
    "two": (2, 1, 3000, False),
    "three": (3, 1, 8192, True),
    "experts cut over two": (2, 2, 2000, False),
    "experts cut over four": (4, 4, 8192, True),
    "experts cut twice over two": (4, 2, 500, False),
}


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_lines_are_translated_alike_by_any_processes_in_any_order(checkpoints, prepared, tmp_path, precision):
    texts = [line for bitext in prepared.bitexts for line in read_column(Path(bitext), "train", "src")][:1200]
    assert len(texts) == 1200
    outcomes = {
        name: lines(texts, checkpoints, prepared, tmp_path / name, precision, *at) for name, at in LINES.items()
    }
    expected = outcomes.pop("one process")
    assert len({text for text, _ in expected.values()}) > 600
    for name, found in outcomes.items():
        other = disagreements(found, expected)
        print(f"{precision}, {name}: {len(other)} of {len(texts)} differ")
        assert len(other) <= (0.002 * len(texts) if precision == "fp32" else 0), name


def lines(texts, checkpoints, prepared, out, precision, processes, ep, batch_tokens, backwards):
    """Translation and score by line."""
    out.mkdir()
    order = range(len(texts))[:: -1 if backwards else 1]
    write_lines((texts[number] for number in order), out / "lines.parquet")
    decode = {"batch_tokens": batch_tokens, "precision": precision}
    placement = "sharded" if ep > 1 else "auto"
    of = decoding_job(
        prepared,
        out,
        checkpoints=checkpoints,
        processes=processes,
        ep=ep,
        decode=decode,
        decode_experts=placement,
    )
    shard = LineShard(directory=out, start=0, stop=len(texts))
    job = LinesJob(
        title="lines",
        lines=str(out / "lines.parquet"),
        shards=[[shard.start, shard.stop]],
        target="en",
        max_source_tokens=96,
        vocabulary=of.vocabulary,
        checkpoints=of.checkpoints,
        out=of.out,
        decode=of.decode,
        runtime=of.runtime,
    )
    launch("pipeline.decode.lines", asdict(job), directory=out / "log", processes=processes, threads=1, title=job.title)
    assert shard.gather()
    records = shard.records()
    return {number: (records[row].get("text", ""), records[row].get("score", 0.0)) for row, number in enumerate(order)}
