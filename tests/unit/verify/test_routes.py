"""The recorded routing of one model is repeated in another."""

import math

import pytest
import torch

from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.verify.batches import SHAPE, VOCABULARY, synthetic_step
from pipeline.verify.config import FULL, GATES, NUM_EXPERTS, model_of
from pipeline.verify.routes import Witness


def watched(gate, seed):
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "max_positions": SHAPE.source}
    model = Transformer(model_of(gate), shared=False, **sizes)
    initialize(model, 1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".router." in name:  # zeros too, so that another seed is another routing
                p.normal_(generator=torch.Generator().manual_seed(seed))
    return model, Witness(model)


def run(model, witness, decisions=None):
    witness.begin(decisions)
    seed_group(1, 1, 0)
    return model(synthetic_step(1, 2).groups[0], label_smoothing=0.0).share(target_tokens=50, nonempty_groups=1)


@pytest.mark.parametrize("gate", GATES)
def test_another_router_takes_over_noted_decisions_and_still_learns(gate):
    model, witness = watched(gate, seed=1)
    run(model, witness)
    recorded, served = witness.recorded_N, witness.served_TE
    other, other_witness = watched(gate, seed=2)
    run(other, other_witness)
    assert not torch.equal(other_witness.served_TE, served)
    run(other, other_witness, recorded).backward()
    assert torch.equal(other_witness.served_TE, served)
    for name, p in other.named_parameters():
        if not p.requires_grad:
            continue
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name


@pytest.mark.parametrize("gate", GATES)
def test_its_own_decisions_change_nothing(gate):
    model, witness = watched(gate, seed=1)
    loss = run(model, witness)
    assert torch.equal(run(model, witness, witness.recorded_N), loss)


def test_a_token_is_served_by_at_most_two_and_padding_by_none():
    model, witness = watched("top2", seed=1)
    run(model, witness)
    batch = synthetic_step(1, 2).groups[0]
    valid_T = torch.cat([segments.flatten() > 0 for segments in (batch.encoder_segments_BL, batch.decoder_segments_BT)])
    assert witness.served_TE.sum(dim=1).max() == 2
    assert not witness.served_TE[~valid_T].any()
    capacity = math.ceil(FULL * 2 * SHAPE.rows * SHAPE.source / NUM_EXPERTS)
    assert witness.served_TE[: SHAPE.rows * SHAPE.source].sum(dim=0).max() == capacity  # some expert is full
