"""Cross-entropies of given translations: each row has its own, whatever rows share its batch."""

import numpy as np
import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.decode.job import cross_entropy
from pipeline.decode.job.cross_entropy import batches, cross_entropies, score_in_parts
from pipeline.stopping import Stopped
from pipeline.vocab.encoded import EncodedSplit, SplitWriter
from pipeline.vocab.ragged import Ragged
from tests.unit.model.test_transformer import built, small


@pytest.fixture
def data(tmp_path):
    """Thirty rows of 3 to 9 random tokens, each ending in EOS."""
    rng = np.random.default_rng(1)

    def side():
        lengths = rng.integers(3, 10, size=30)
        tokens = rng.integers(4, 20, size=lengths.sum())
        tokens[np.cumsum(lengths) - 1] = 2
        return Ragged(tokens=tokens, lengths=lengths)

    with SplitWriter(tmp_path, "test", np.dtype(np.uint16)) as writer:
        writer.write(side(), side())
    return EncodedSplit.open(tmp_path, "test")


def test_a_row_has_the_cross_entropy_that_it_has_alone(data, monkeypatch):
    monkeypatch.setattr(cross_entropy, "_BATCH_TOKENS", 40)
    model = built(small(num_experts=0)).eval()
    rounds = list(batches(data))
    nats = np.empty(len(data))
    nats[np.concatenate(rounds)] = cross_entropies(model, data, rounds)
    for row in range(len(data)):
        shape = GroupShape(rows=1, source=len(data.source(row)), target=len(data.target(row)))
        batch = assemble([[(0, row)]], shape, [data])
        with torch.inference_mode():
            memory, _ = model.encode(batch)
            hidden, _ = model.decode(batch, memory)
            log_p_TV = torch.log_softmax(hidden[0] @ model.target_embedding_VM.T, dim=-1)
        target = torch.tensor(data.target(row).astype(np.int64))
        assert nats[row] == pytest.approx(-log_p_TV[torch.arange(len(target)), target].mean().item(), abs=1e-5)


def test_parts_that_an_interrupted_attempt_scored_are_read(data, tmp_path, monkeypatch):
    monkeypatch.setattr(cross_entropy, "_BATCH_TOKENS", 40)
    monkeypatch.setattr(cross_entropy, "_PART_BATCHES", 3)
    model = built(small(num_experts=0)).eval()
    whole = score_in_parts(model, data, tmp_path / "whole", iter)
    scored = []

    def interrupted(rounds):
        for rows in rounds:
            if len(scored) == 4:
                raise Stopped("score")
            scored.append(rows)
            yield rows

    with pytest.raises(Stopped):
        score_in_parts(model, data, tmp_path / "parts", interrupted)
    (part,) = (tmp_path / "parts").glob("*.npy")
    np.save(part, np.load(part) + 1)  # as a mark
    resumed = score_in_parts(model, data, tmp_path / "parts", iter)
    marked = np.isin(np.arange(len(data)), np.concatenate(scored[:3]))
    np.testing.assert_array_equal(resumed, whole + marked)


@pytest.mark.parametrize("tokens", [1, 40, 4096])
def test_batches_have_every_row_once_and_a_bounded_size(data, monkeypatch, tokens):
    monkeypatch.setattr(cross_entropy, "_BATCH_TOKENS", tokens)
    rounds = list(batches(data))
    assert sorted(np.concatenate(rounds).tolist()) == list(range(30))
    longest = np.maximum(data.source_lengths, data.target_lengths)
    assert all(len(rows) == 1 or len(rows) * longest[rows].max() <= tokens for rows in rounds)
    assert len(rounds) == {1: 30, 4096: 1}.get(tokens, len(rounds))
