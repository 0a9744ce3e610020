"""Batches of sentences to decode. In float32 and without a capacity, they do not affect the translations."""

from collections.abc import Sequence

from pipeline.decode.config import DecodeConfig


def plan_batches(lengths: Sequence[int], config: DecodeConfig) -> list[list[int]]:
    """Group sentences of like length into batches, and return the sentence numbers of each batch, longest first.

    A batch holds at least one sentence. Its padded tokens times hypotheses are at most `batch_tokens`.
    lengths: tokens of each sentence's source or prefix, whichever is longer.
    """
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    batches: list[list[int]] = []
    for number in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] * config.hypotheses <= config.batch_tokens:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches
