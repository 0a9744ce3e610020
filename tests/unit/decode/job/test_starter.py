"""The test translations of a job are written in the order of the test set, and a finished job starts no process."""

import json
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.corpus.bitext import read_bitext, read_column
from pipeline.corpus.languages import LangPair
from pipeline.dag import work
from pipeline.dag.artifact import Artifact
from pipeline.decode.job import starter
from pipeline.decode.job.drops import add_record, leave_drops
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import make_shards
from pipeline.model.moe.drops import DropCount
from tests.unit.decode.conftest import DECODE


@pytest.fixture
def bitext(prepared):
    return Path(prepared.bitexts[prepared.pairs.index("tr-en")])


@pytest.fixture
def job(bitext, tmp_path):
    shards = make_shards(tmp_path / "work", read_column(bitext, "test", "src"), target="en")
    return TranslateJob(
        title="translate",
        rounds=[shards],
        max_source_tokens=0,
        long="whole",
        vocabulary="",
        checkpoints="",
        log=str(tmp_path / "log"),
        decode=DECODE,
        runtime=load_config([]).runtime,
    )


def write_records(shard, rows):
    for rank in range(2):
        records = [{"row": row, "text": f"h{row}\u2028", "score": -1.0, "at_limit": row == 2} for row in rows[rank::2]]
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        shard.part(rank).write_text("".join(lines), encoding="utf-8")


def test_translations_are_in_the_order_of_the_test_set(job, bitext, tmp_path):
    ((shard,),) = job.rounds
    count = len(read_bitext(bitext, "test"))
    write_records(shard, list(range(count))[::-1])
    starter.run_job(job)  # all rows are translated, so it starts no process: the vocabulary is not even there
    starter.write_test_translations([shard], bitext, tmp_path / "tr-en.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "tr-en.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [row["hypothesis"] for row in rows] == [f"h{number}\u2028" for number in range(count)]
    assert [row["source"] for row in rows] == read_column(bitext, "test", "src")
    assert rows[0].keys() == {"source", "hypothesis", "reference", "score", "at_limit"}
    assert [row["at_limit"] for row in rows] == [number == 2 for number in range(count)]


def test_the_limit_is_unknown_for_lines_that_an_older_version_translated(job, bitext, tmp_path):
    ((shard,),) = job.rounds
    count = len(read_bitext(bitext, "test"))
    records = [{"row": 0, "text": "h0", "score": -1.0}, {"row": 1, "skipped": "empty"}]
    records += [{"row": row, "text": f"h{row}", "score": -1.0, "at_limit": False} for row in range(2, count)]
    shard.part(0).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    starter.run_job(job)
    starter.write_test_translations([shard], bitext, tmp_path / "tr-en.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "tr-en.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["at_limit"] for row in rows] == [None, *[False] * (count - 1)]


def test_the_limit_of_a_first_step_counts_too(job, bitext, tmp_path):
    ((shard,),) = job.rounds
    count = len(read_bitext(bitext, "test"))
    records = [{"row": 0, "skipped": "empty"}]
    records += [{"row": row, "text": f"h{row}", "score": -1.0, "at_limit": row == 1} for row in range(1, count)]
    shard.part(0).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    starter.run_job(job)
    first = [row in (0, 2) for row in range(count)]
    texts = ["" if row == 0 else f"p{row}" for row in range(count)]
    starter.write_test_translations([shard], bitext, tmp_path / "tr-en.jsonl", pivot=texts, at_limit=first)
    rows = [json.loads(line) for line in (tmp_path / "tr-en.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["at_limit"] for row in rows] == [True, True, True, *[False] * (count - 3)]


def test_choices_that_an_earlier_attempt_dropped_are_told(job, bitext, tmp_path, caplog):
    write_records(job.rounds[0][0], list(range(len(read_bitext(bitext, "test")))))
    drops = DropCount()
    add_record(drops, {"asked": 8, "kept": 6})
    leave_drops(drops, tmp_path / "log", rank=0)
    with caplog.at_level("INFO"):
        starter.run_job(job)
    assert caplog.messages == ["translate: 25.0 % of 8 choices of experts dropped"]


def test_parts_that_an_older_version_left_are_removed(job, bitext, tmp_path):
    shards = make_shards(tmp_path / "work" / "tr-en", read_column(bitext, "test", "src"), target="en")
    write_records(shards[0], list(range(len(read_bitext(bitext, "test")))))
    (tmp_path / "tr-en.rank-0.jsonl").write_text("{}\n")
    artifact = Artifact(stage="clean", key="0", path=bitext, content="")
    work.translate(
        {LangPair("tr", "en"): artifact}, artifact, artifact, DECODE, job.runtime, "moe", 0, None, (), tmp_path
    )
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["tr-en.jsonl"]


def test_a_missing_row_is_noticed(job, monkeypatch):
    monkeypatch.setattr(starter, "launch_job", lambda *_, **__: write_records(job.rounds[0][0], [0, 1]))
    with pytest.raises(AssertionError, match="has 2 records"):
        starter.run_job(job)
