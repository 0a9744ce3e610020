"""Each process gets its groups of every step in order, the next one ahead, and a checkpoint knows nothing of that."""

from dataclasses import dataclass, fields
from types import SimpleNamespace

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.batch import Batch
from pipeline.batch.mixture import Mixture
from pipeline.train import feed, totals
from pipeline.train.feed import Feed
from pipeline.train.totals import Stopwatch
from tests.unit.batch.streams import config, named, random_lengths, take
from tests.unit.model.test_transformer import Pairs

LENGTHS = random_lengths(300)
DATA = [Pairs([([5] * s, [6] * t) for s, t in zip(LENGTHS.source, LENGTHS.target, strict=True)])]
CPU = torch.device("cpu")
STEPS = 9  # two windows and a part of the third


@dataclass(frozen=True)
class Share:
    """A process's place in a mesh."""

    batch_rank: int = 0
    batch_size: int = 1
    device: torch.device = CPU


def mixture():
    return Mixture(config(groups_per_step=4), [LENGTHS], seed=3)


def feed_of(share=Share(), stream=None, watch=None):
    return Feed(stream or mixture(), DATA, share, watch or Stopwatch())


@pytest.mark.parametrize("prepares", [True, False])
@pytest.mark.parametrize("share", [Share(), Share(0, 2), Share(1, 2), Share(3, 4)])
def test_a_process_gets_its_groups_of_every_step_in_order(share, prepares):
    batches = feed_of(share)
    for expected in take(mixture(), STEPS):
        step = batches.start()
        assert named([step]) == named([expected])
        numbers = []
        for number, batch in batches.groups(step):
            numbers.append(number)
            reference = assemble(expected.group(number), expected.shape, DATA)
            for field in fields(reference):
                value, expected_value = getattr(batch, field.name), getattr(reference, field.name)
                assert torch.equal(value, expected_value) if torch.is_tensor(value) else value == expected_value
            if prepares:
                batches.prepare()
        assert numbers == list(range(share.batch_rank, 4, share.batch_size))


def test_the_next_batch_is_made_when_it_is_asked_for_ahead_and_only_once(monkeypatch):
    groups_made = []
    monkeypatch.setattr(
        feed, "assemble", lambda group, shape, data: groups_made.append(group) or assemble(group, shape, data)
    )
    batches = feed_of(Share(1, 2))
    for number, step in enumerate(take(mixture(), STEPS)):
        batches.start()
        for _ in batches.groups(step):
            before = len(groups_made)
            batches.prepare()
            batches.prepare()
            assert len(groups_made) == before + 1
        assert len(groups_made) == 2 * (number + 1) + 1


def test_a_checkpoint_continues_at_the_step_that_was_prepared_and_not_started():
    straight = take(mixture(), STEPS)
    stream = mixture()
    batches = feed_of(stream=stream)
    for number in range(STEPS - 1):
        for _ in batches.groups(batches.start()):
            batches.prepare()
        resumed = mixture()
        resumed.restore(batches.position.state())
        assert named(take(resumed, 1)) == named(straight[number + 1 : number + 2])
        assert stream.position.state() != batches.position.state()  # it has the prepared step


def test_data_wait_has_assembly_and_no_copy_to_the_device(monkeypatch):
    clock = [0.0]

    def taking(seconds, function):
        def run(*args):
            clock[0] += seconds
            return function(*args)

        return run

    monkeypatch.setattr(totals, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(feed, "assemble", taking(1, assemble))
    monkeypatch.setattr(Batch, "to", taking(100, Batch.to))
    watch = Stopwatch()
    batches = feed_of(watch=watch)
    step = batches.start()
    assert len(list(batches.groups(step))) == step.num_groups == 4
    assert watch.seconds == 4
