"""Start of a translation job, and its results."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from pipeline.corpus.bitext import read_column
from pipeline.decode.job.drops import say_drops
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import Shard
from pipeline.jobs.hosts import launch_job


def run_job(job: TranslateJob) -> None:
    """Translate the shards that no earlier attempt has completed. Raises Stopped or JobFailed.

    Then `Shard.records` has a record for every row.
    """
    complete = {shard: shard.gather() for shards in job.rounds for shard in shards}
    rounds = [shards for shards in job.rounds if not all(complete[shard] for shard in shards)]
    if not rounds:
        say_drops(Path(job.log), job.title)
        return
    values, log = asdict(replace(job, rounds=rounds)), Path(job.log)
    module = "pipeline.decode.job.process"
    launch_job(module, values, directory=log, runtime=job.runtime, title=job.title, slot=job.slot)
    say_drops(log, job.title)
    for shard in complete:
        assert shard.gather(), f"{shard} has {len(shard.records())} records"


def write_test_translations(shards: Sequence[Shard], bitext: Path, path: Path) -> None:
    """Write the translated test set of a pair: source, hypothesis, reference and score, in the test set's order."""
    records = {row: record for shard in shards for row, record in shard.records().items()}
    sources, references = (read_column(bitext, "test", side) for side in ("src", "tgt"))
    with path.open("w", encoding="utf-8") as stream:
        for row, (source, reference) in enumerate(zip(sources, references, strict=True)):
            text, score = records[row].get("text", ""), records[row].get("score", 0.0)
            values = {"source": source, "hypothesis": text, "reference": reference, "score": score}
            stream.write(json.dumps(values, ensure_ascii=False) + "\n")
