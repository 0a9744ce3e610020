"""One process of a job that translates lines: `python -m pipeline.decode.lines job.json`, as `pipeline.decode`.

Shard by shard, each process takes its share of the batches. What is in a batch depends on the lines alone, not on the
number of processes or on what an interrupted attempt did, and so do the translations, to the last bit.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.decode.job import LinesJob
from pipeline.decode.shards import LineShard, Record, read_lines
from pipeline.decode.share import Batch, load_translator, report, share, translate_batches
from pipeline.decode.text import Line
from pipeline.decode.translator import Translator
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.schema import build


def translate(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(LinesJob, values)
    place = Place.take(job.runtime)
    translator = load_translator(job, place, stop, max_source_tokens=job.max_source_tokens, long="skip")
    quiet = place.rank != 0 or not sys.stderr.isatty()
    rows = sum(end - start for start, end in job.shards)
    with tqdm(total=rows, desc=job.title, unit="line", leave=False, disable=quiet) as bar:
        for start, end in job.shards:
            _translate_shard(job, translator, LineShard(directory=Path(job.out), start=start, stop=end), place, stop)
            bar.update(end - start)
    report(translator, place, job.out)


def _translate_shard(job: LinesJob, translator: Translator, shard: LineShard, place: Place, stop: StopRequest) -> None:
    """This process's share of the shard's batches, without those that an earlier attempt translated."""
    texts = read_lines(Path(job.lines), shard.start, shard.stop)
    lines = [Line(text=text, target=job.target, number=row) for row, text in enumerate(texts, start=shard.start)]
    plan, done = translator.plan(lines), shard.records().keys()
    mine = [
        [] if done >= {lines[part.line].number for part in batch} else batch
        for batch in share(plan.batches, place, together=translator.peers is not None)
    ]
    with shard.part(place.rank).open("a", encoding="utf-8") as file:
        if place.rank == 0:
            fates = plan.fates.items()
            _write(file, [{"row": lines[index].number, "skipped": fate.skipped} for index, fate in fates])

        def write(batch: Batch, found: list[Record]) -> None:
            rows = [lines[part.line].number for part in batch]
            _write(file, [{"row": row, **values} for row, values in zip(rows, found, strict=True)])

        translate_batches(translator, mine, write, stop=stop, title=job.title)


def _write(file: Any, records: Iterable[Record]) -> None:
    file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    file.flush()


if __name__ == "__main__":
    run_process(translate)
