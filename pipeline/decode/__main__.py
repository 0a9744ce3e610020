"""One process of a translation job: `python -m pipeline.decode job.json` with RANK and WORLD_SIZE set.

Each process holds the whole model and takes its own share of the sentences, so no collective is needed and none can
hang.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.corpus.bitext import read_column
from pipeline.decode.batches import plan_batches
from pipeline.decode.job import TranslateJob
from pipeline.decode.model import load_model
from pipeline.decode.search import Request, search
from pipeline.parallel.device import Place
from pipeline.parallel.process import StopRequest, run_process
from pipeline.schema import build
from pipeline.stage import Stopped
from pipeline.vocab.tokenizer import Vocabulary


def translate(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(TranslateJob, values)
    place = Place.take(job.runtime)
    vocabulary = Vocabulary.load(Path(job.vocabulary))
    sources: list[tuple[int, int, list[int]]] = []  # (pair, row, tokens)
    for index, (bitext, target, done) in enumerate(zip(job.bitexts, job.targets, map(set, job.done), strict=True)):
        encoded = vocabulary.encode_source(read_column(Path(bitext), "test", "src"), target)
        sources += [(index, row, tokens) for row, tokens in enumerate(encoded) if row not in done]
    if not sources:  # an earlier attempt was interrupted after its last sentence
        return
    planned = plan_batches([len(tokens) for _, _, tokens in sources], job.decode)[place.rank :: place.world]
    batches = [[sources[number] for number in batch] for batch in planned]
    model = load_model(
        Path(job.checkpoints),
        vocabulary,
        longest=max(len(tokens) for _, _, tokens in sources),
        config=job.decode,
        device=place.device,
        experts=job.experts,
    )
    with ExitStack() as opened:
        paths = [Path(job.out, f"{pair}.rank-{place.rank}.jsonl") for pair in job.pairs]
        files = [opened.enter_context(path.open("a", encoding="utf-8")) for path in paths]
        quiet = place.rank != 0 or not sys.stderr.isatty()
        for batch in tqdm(batches, desc=job.title, position=job.slot, unit="batch", leave=False, disable=quiet):
            if stop:
                raise Stopped(job.title)
            requests = [Request(source=tokens, number=row) for _, row, tokens in batch]
            found = [best for best, *_ in search(model, requests, job.decode)]
            texts = vocabulary.decode_target([hypothesis.tokens for hypothesis in found])
            for (pair, row, _), text, hypothesis in zip(batch, texts, found, strict=True):
                record = {"row": row, "hypothesis": text, "score": round(hypothesis.score, 5)}
                files[pair].write(json.dumps(record, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    run_process(translate)
