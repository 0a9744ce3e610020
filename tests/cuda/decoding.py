"""Beam search and sampling of a small model on a CPU and on the impostor, for comparison."""

from dataclasses import dataclass

import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import set_precision
from pipeline.decode.search.hypothesis import Hypothesis, Request
from pipeline.decode.search.search import Alone, search
from tests.cuda.impostor import Impostor
from tests.cuda.training import built, config_of
from tests.gates import PAIRS

SOURCES = [[5, 6, 7, 8, 2], [9, 10, 2], [11, 12, 13, 14, 15, 16, 2], [17, 2]]
STORE = "decode/search/rows.py:_store"  # waits in a step in which a hypothesis ends


@dataclass(frozen=True, kw_only=True)
class Translations:
    """Hypotheses of the CPU and of the impostor, and the waits of each step of the impostor in which nothing ends."""

    cpu_hypotheses: list[list[Hypothesis]]
    cuda_hypotheses: list[list[Hypothesis]]
    waits: list[list[tuple[str, str]]]


def requests(*, with_prefix):
    return [
        Request(
            source=source,
            number=number,
            prefix=[20 + number] if with_prefix and number % 2 else [],
            pair=PAIRS[number],
        )
        for number, source in enumerate(SOURCES)
    ]


def sharp(gate):
    """Return a model whose outputs differ much, so that rounding does not change the best."""
    model = built(config_of(gate) if gate else config_of("top2", num_experts=0))
    with torch.no_grad():
        model.target_embedding_VM.mul_(3.0)
    return model.eval()


class Watch(Alone):
    """Notes the waits of each pass of a search, which asks before it if a process is busy."""

    def __init__(self, counts):
        self.counts, self.passes = counts, []

    def any(self, busy):
        self.passes.append(sorted(self.counts.waits.elements()))
        self.counts.waits.clear()
        return busy


def translate(gate, *, with_prefix=False, **settings):
    """Decode on both sides. gate: None is a dense model."""
    config = DecodeConfig(
        **{"max_length_ratio": 0.5, "max_length_extra": 8, "min_length": 3, "no_repeat_ngram": 2, **settings}
    )
    sentences = requests(with_prefix=with_prefix)
    model, cuda_model = sharp(gate), sharp(gate)
    set_precision(model, config.precision)
    with Impostor() as impostor:
        impostor.model(cuda_model)
        set_precision(cuda_model, config.precision)
        watch = Watch(impostor.counts)
        hypotheses = search(cuda_model, sentences, config, watch)
    steps = watch.passes[2:]  # before the first step come the copies of the sentences, and the encoder
    return Translations(
        cpu_hypotheses=search(model, sentences, config),
        cuda_hypotheses=hypotheses,
        waits=[step for step in steps if not any(place == STORE for place, _ in step)],
    )
