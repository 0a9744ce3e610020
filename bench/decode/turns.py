"""A system's side of the contest: a process that stays alive, and translates batches on demand.

A line of standard input is a batch: a JSON list of numbers of sentences. The answer is a line of standard output.
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


def take_turns(sources: Sequence[Sequence[int]], translate: Translate, **about: Any) -> None:
    """Answer every line of standard input with the translations of its batch.

    sources: token ids of all sentences.
    translate: function from one batch of sources to token ids without `</s>`.
    about: columns that only the first line of output has.
    """
    print(json.dumps({"ready": True, **about}), flush=True)
    for line in sys.stdin:
        batch = json.loads(line)
        cpu_start = time.process_time()
        translations = translate([sources[number] for number in batch])
        answer = {
            "cpu_seconds": time.process_time() - cpu_start,
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "found": dict(zip(batch, translations, strict=True)),
        }
        print(json.dumps(answer), flush=True)
