"""One process of a job that translates lines: `python -m pipeline.decode.lines job.json`, as `pipeline.decode`.

Shard by shard, each process takes its share of the batches. What is in a batch depends on the lines alone, not on the
number of processes or on what an interrupted attempt did, and so do the translations, to the last bit.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline.decode.batches import plan_batches
from pipeline.decode.job import LinesJob
from pipeline.decode.model import load_model
from pipeline.decode.search import Request, search
from pipeline.decode.shards import LineShard, Record, read_lines
from pipeline.parallel.device import Place
from pipeline.parallel.process import StopRequest, run_process
from pipeline.schema import build
from pipeline.stage import Stopped
from pipeline.vocab.tokenizer import Vocabulary

EMPTY, TOO_LONG = "empty", "too_long"
_NO_PIECES = 2  # tokens: tag and end

Row = tuple[int, list[int]]  # and its tokens


def translate(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(LinesJob, values)
    place = Place.take(job.runtime)
    vocabulary = Vocabulary.load(Path(job.vocabulary))
    longest, decode = job.max_source_tokens, job.decode
    model = load_model(Path(job.checkpoints), vocabulary, longest=longest, config=decode, device=place.device)
    quiet = place.rank != 0 or not sys.stderr.isatty()
    rows = sum(end - start for start, end in job.shards)
    with tqdm(total=rows, desc=job.title, unit="line", leave=False, disable=quiet) as bar:
        for start, end in job.shards:
            shard = LineShard(directory=Path(job.out), start=start, stop=end)
            batches, skipped = plan(job, vocabulary, shard)
            done = shard.records().keys()
            with shard.part(place.rank).open("a", encoding="utf-8") as file:
                if place.rank == 0:
                    _write(file, skipped)
                for batch in batches[place.rank :: place.world]:
                    if stop:
                        raise Stopped(job.title)
                    if not done >= {row for row, _ in batch}:
                        found = [best for best, *_ in search(model, [Request(source=t) for _, t in batch], decode)]
                        texts = vocabulary.decode_target([hypothesis.tokens for hypothesis in found])
                        scores = [round(hypothesis.score, 5) for hypothesis in found]
                        _write(
                            file,
                            [
                                {"row": row, "text": text, "score": score}
                                for (row, _), text, score in zip(batch, texts, scores, strict=True)
                            ],
                        )
            bar.update(end - start)


def plan(job: LinesJob, vocabulary: Vocabulary, shard: LineShard) -> tuple[list[list[Row]], list[Record]]:
    """Batches of the lines of a shard, longest first, and records of the lines that are not translated."""
    lines = read_lines(Path(job.lines), shard.start, shard.stop)
    rows: list[Row] = []
    skipped: list[Record] = []
    for row, tokens in enumerate(vocabulary.encode_source(lines, job.target), start=shard.start):
        if len(tokens) == _NO_PIECES:
            skipped.append({"row": row, "skipped": EMPTY})
        elif len(tokens) > job.max_source_tokens:
            skipped.append({"row": row, "skipped": TOO_LONG})
        else:
            rows.append((row, tokens))
    batches = plan_batches([len(tokens) for _, tokens in rows], job.decode)
    return [[rows[number] for number in batch] for batch in batches], skipped


def _write(file: Any, records: Sequence[Record]) -> None:
    file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    file.flush()


if __name__ == "__main__":
    run_process(translate)
