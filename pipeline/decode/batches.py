"""Which sentences are decoded together; in float32 and without a capacity it changes no translation."""

from collections.abc import Sequence

from pipeline.decode.config import DecodeConfig


def plan_batches(lengths: Sequence[int], config: DecodeConfig) -> list[list[int]]:
    """Numbers of the sentences of each batch, longest first. lengths: tokens of the source, or of the prefix if
    it has more. A batch has at most `batch_tokens` of padded sources times hypotheses, and at least one sentence."""
    order = sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))
    batches: list[list[int]] = []
    for number in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] * config.hypotheses <= config.batch_tokens:
            batches[-1].append(number)
        else:
            batches.append([number])
    return batches
