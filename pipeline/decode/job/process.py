"""One process of a translation job: `python -m pipeline.decode.job.process job.json` with RANK and WORLD_SIZE set.

Each process translates its share of the batches. A process with the whole model runs no collective, so it cannot hang.
Processes that share experts use `pipeline.decode.experts.peers`. The batches of a round depend on its lines only, not
on the number of processes or on interrupted attempts. So the translations do not depend on these, to the last bit.
"""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.decode.job.drops import leave_drops
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import Shard
from pipeline.decode.job.share import load_translating, share
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.live import is_live
from pipeline.schema import build
from pipeline.stopping import Stopped
from pipeline.vocab.tokenizer import Vocabulary


def translate(values: dict[str, Any], stop: StopRequest) -> None:
    """Translate this process's share of the batches of every round. values: of a TranslateJob."""
    job = build(TranslateJob, values)
    place, longest = Place.take(job.runtime), job.max_source_tokens
    vocabulary = Vocabulary.load(Path(job.vocabulary))
    model, peers = load_translating(
        [Path(path) for path in (job.checkpoints, *job.ensemble)],
        vocabulary,
        job.decode,
        job.runtime,
        place,
        longest=longest,
        experts=job.experts,
        stop=stop,
        title=job.title,
    )
    translator = Translator(model, vocabulary, job.decode, max_source_tokens=longest, long=job.long, peers=peers)
    for number, shards in enumerate(job.rounds, start=1):
        title = job.title if len(job.rounds) == 1 else f"{job.title} {number}/{len(job.rounds)}"
        translate_round(shards, translator, place, stop, title=title, slot=job.slot)
    if job.decode.capacity_factor:
        leave_drops(translator.drops, Path(job.log), place.rank)


def translate_round(
    shards: Sequence[Shard], translator: Translator, place: Place, stop: StopRequest, *, title: str, slot: int = 0
) -> None:
    """Translate this process's share of the batches of some shards, except batches that an earlier attempt translated.

    The records of a batch are written as soon as it is translated.
    Raises Stopped between two batches; peers raise it within a batch, all at the same time.
    """
    lines: list[Line] = []
    places: list[tuple[int, int]] = []  # index of the shard and row, for each line
    translated: set[tuple[int, int]] = set()
    for index, shard in enumerate(shards):
        for row, text in enumerate(shard.texts(), start=shard.start):
            lines.append(Line(text=text, source=shard.source, target=shard.target, number=row))
            places.append((index, row))
        translated.update((index, row) for row in shard.records())
    plan = translator.plan(lines)
    batches = [
        [] if all(places[part.line] in translated for part in batch) else batch
        for batch in share(plan.batches, place, empty=None if translator.peers is None else [])
    ]
    with ExitStack() as stack:
        parts = [shard.part(place.rank) for shard in shards]
        files = [stack.enter_context(part.open("a", encoding="utf-8", buffering=1)) for part in parts]

        def write(line: int, **outcome: Any) -> None:
            index, row = places[line]
            files[index].write(json.dumps({"row": row, **outcome}, ensure_ascii=False) + "\n")

        if place.rank == 0:
            for line, outcome in plan.fates.items():
                write(line, skipped=outcome.skipped)
        quiet = place.rank != 0 or not is_live(sys.stderr)
        for batch in tqdm(batches, desc=title, position=slot, unit="batch", leave=False, disable=quiet):
            if stop and translator.peers is None:
                raise Stopped(title)
            best = [hypotheses[0] for hypotheses in translator.search(batch)]
            for part, text, hypothesis in zip(batch, translator.texts(best), best, strict=True):
                write(part.line, text=text, score=round(hypothesis.score, 5), at_limit=hypothesis.at_limit)


if __name__ == "__main__":
    run_process(translate)
