"""Micro-batches that come to the impostor as in training, the next one ahead."""

from dataclasses import dataclass

import torch

from pipeline.batch.mixture import Mixture
from pipeline.train.feed import Feed
from pipeline.train.totals import Stopwatch
from tests.cuda.counting import Counts
from tests.cuda.impostor import CUDA, Impostor, on_cpu
from tests.cuda.training import built, config_of, run
from tests.unit.batch.streams import config, random_lengths
from tests.unit.model.test_transformer import Pairs

LENGTHS = random_lengths(100)
DATA = [Pairs([([5] * s, [6] * t) for s, t in zip(LENGTHS.source, LENGTHS.target, strict=True)])]
STEPS = 2


@dataclass(frozen=True)
class Alone:
    """The mesh of one process."""

    device: torch.device
    batch_rank: int = 0
    batch_size: int = 1


def trained(feed, model):
    """Run the micro-batches of `STEPS` steps. Return their losses."""
    losses = []
    for _ in range(STEPS):
        for _, batch in feed.groups(feed.start()):
            loss, _ = run(model, batch, precision="fp32")
            losses.append(on_cpu(loss))
            feed.prepare()
    return torch.stack(losses).tolist()


def feed_of(device):
    return Feed(Mixture(config(groups_per_step=2), [LENGTHS], seed=3), DATA, Alone(device), Stopwatch())


def steps_on_both():
    """Return the losses on the CPU and on the impostor, and the impostor's waits."""
    on_host = trained(feed_of(torch.device("cpu")), built(config_of("top2")))
    with Impostor() as impostor:
        model = impostor.model(built(config_of("top2")))
        impostor.counts = Counts()
        losses = trained(feed_of(CUDA), model)
        return on_host, losses, dict(impostor.counts.waits)
