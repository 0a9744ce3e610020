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


def write_test_translations(
    shards: Sequence[Shard], bitext: Path, path: Path, *, pivot: Sequence[str] = (), at_limit: Sequence[bool] = ()
) -> None:
    """Write the translated test set of a pair: source, hypothesis, reference and score, in the test set's order.

    `at_limit` says whether the limit of length ended a translation. It is null where an older version translated a line
    before an interruption, and files of older versions lack it.
    pivot: the text that was translated in place of each source, which is written too.
    at_limit: for each line, true if the limit of length ended the translation that is its pivot.
    """
    records = {row: record for shard in shards for row, record in shard.records().items()}
    sources, references = (read_column(bitext, "test", side) for side in ("src", "tgt"))
    with path.open("w", encoding="utf-8") as stream:
        for row, (source, reference) in enumerate(zip(sources, references, strict=True)):
            record = records[row]
            text, score = record.get("text", ""), record.get("score", 0.0)
            values = {"source": source, "hypothesis": text, "reference": reference, "score": score}
            values["at_limit"] = False if "skipped" in record else record.get("at_limit")
            if at_limit:
                values["at_limit"] = at_limit[row] or values["at_limit"]
            if pivot:
                values["pivot"] = pivot[row]
            stream.write(json.dumps(values, ensure_ascii=False) + "\n")
