"""A system's side of the contest: a process that stays alive, and translates its share of the sentences on demand.

A line of standard input is the number of sentences. The answer is a line of JSON on standard output.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.decode.systems import BEAM
from pipeline.decode.config import DecodeConfig
from pipeline.decode.text.batches import plan_batches

Translate = Callable[[Sequence[Sequence[int]]], list[list[int]]]


def batches(sources: Sequence[Sequence[int]], batch_tokens: int) -> list[list[int]]:
    """Return the numbers of the sentences of each batch, as our decoding cuts them."""
    config = DecodeConfig(beam=BEAM, length_penalty=1.0, batch_tokens=batch_tokens)
    return plan_batches([len(source) for source in sources], config)


def take_turns(job: dict[str, Any], translate: Translate, **about: Any) -> None:
    """Answer every line of standard input with a round of translation.

    job: the sources and settings of this process.
    translate: function from one batch of sources to token ids without `</s>`.
    about: columns that only the first line of output has.
    """
    print(json.dumps({"ready": True, **about}), flush=True)
    for line in sys.stdin:
        sources = job["sources"][: int(line)]
        own_batches = batches(sources, job["batch_tokens"])[job["rank"] :: job["processes"]]
        translations: dict[int, list[int]] = {}
        start, cpu_start = time.perf_counter(), time.process_time()
        for batch in own_batches:
            translations |= dict(zip(batch, translate([sources[number] for number in batch]), strict=True))
        answer = {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu_start,
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "found": translations,
        }
        print(json.dumps(answer), flush=True)
