"""A system's side of the contest: a process that stays alive, and translates its share of the sentences when told.

A line of standard input is the number of sentences to take; the answer is a line of JSON on standard output.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.decode.plan import BEAM
from pipeline.decode.batches import plan_batches
from pipeline.decode.config import DecodeConfig

Translate = Callable[[Sequence[Sequence[int]]], list[list[int]]]


def batches(sources: Sequence[Sequence[int]], batch_tokens: int) -> list[list[int]]:
    """Numbers of the sentences of each batch, as ours has them."""
    config = DecodeConfig(beam=BEAM, length_penalty=1.0, batch_tokens=batch_tokens)
    return plan_batches([len(source) for source in sources], config)


def take_turns(job: dict[str, Any], translate: Translate, **about: Any) -> None:
    """translate: one batch of sources to token ids, `</s>` left out. about: said once, in the first answer."""
    print(json.dumps({"ready": True, **about}), flush=True)
    for line in sys.stdin:
        sources = job["sources"][: int(line)]
        mine = batches(sources, job["batch_tokens"])[job["rank"] :: job["processes"]]
        found: dict[int, list[int]] = {}
        began, busy = time.perf_counter(), time.process_time()
        for batch in mine:
            found |= dict(zip(batch, translate([sources[number] for number in batch]), strict=True))
        answer = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - busy,
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "found": found,
        }
        print(json.dumps(answer), flush=True)
