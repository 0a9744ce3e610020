"""One process of a translation job: `python -m pipeline.decode job.json` with RANK and WORLD_SIZE set.

Each process takes its own share of the sentences. Where it holds the whole model, no collective is needed and none can
hang; where processes hold the experts between them, see `pipeline.decode.peers`. What is in a batch depends on the
test sets alone, not on the number of processes or on what an interrupted attempt did.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.corpus.bitext import read_column
from pipeline.decode.job import TranslateJob
from pipeline.decode.share import Batch, load_translator, report, share, translate_batches
from pipeline.decode.text import Line
from pipeline.decode.translator import Translator
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.schema import build


def translate(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(TranslateJob, values)
    place = Place.take(job.runtime)
    sources = [read_column(Path(bitext), "test", "src") for bitext in job.bitexts]
    if sum(map(len, job.done)) == sum(map(len, sources)):  # an earlier attempt was interrupted after its last sentence
        return
    translator = load_translator(job, place, stop, long="whole")
    translate_rest(job, sources, translator, place, stop)
    report(translator, place, job.out)


def translate_rest(
    job: TranslateJob, sources: Sequence[Sequence[str]], translator: Translator, place: Place, stop: StopRequest
) -> None:
    """This process's share of the batches, without those that an earlier attempt translated. sources: by pair."""
    lines, places = [], []  # places: pair and row of each line
    for pair, (texts, target) in enumerate(zip(sources, job.targets, strict=True)):
        lines += [Line(text=text, target=target, number=row) for row, text in enumerate(texts)]
        places += [(pair, row) for row in range(len(texts))]
    done = {(pair, row) for pair, rows in enumerate(job.done) for row in rows}
    plan = translator.plan(lines)
    with ExitStack() as opened:
        paths = [Path(job.out, f"{pair}.rank-{place.rank}.jsonl") for pair in job.pairs]
        files = [opened.enter_context(path.open("a", encoding="utf-8", buffering=1)) for path in paths]

        def record(line: int, text: str, score: float) -> None:
            pair, row = places[line]
            values = {"row": row, "hypothesis": text, "score": score}
            files[pair].write(json.dumps(values, ensure_ascii=False) + "\n")

        def write(batch: Batch, found: list[dict[str, Any]]) -> None:
            for part, values in zip(batch, found, strict=True):
                record(part.line, **values)

        for line in plan.fates if place.rank == 0 else ():  # what is empty has an empty translation
            record(line, "", 0.0)
        mine = [
            [] if all(places[part.line] in done for part in batch) else batch
            for batch in share(plan.batches, place, together=translator.peers is not None)
        ]
        quiet = place.rank != 0 or not sys.stderr.isatty()
        bar = tqdm(mine, desc=job.title, position=job.slot, unit="batch", leave=False, disable=quiet)
        translate_batches(translator, bar, write, stop=stop, title=job.title)


if __name__ == "__main__":
    run_process(translate)
