"""Initial weights have the distributions of their formulas."""

import math

import pytest
import torch

from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer

M, HEADS, HEAD_DIM, HIDDEN, EXPERT_HIDDEN, EXPERTS = 64, 4, 32, 256, 96, 4
KEYS = HEADS * HEAD_DIM
GLOROT = {  # fan in, fan out of each projection
    "wq_MND": (M, KEYS),
    "wk_MND": (M, KEYS),
    "wv_MND": (M, KEYS),
    "wo_NDM": (KEYS, M),
    "wi_MH": (M, HIDDEN),
    "wo_HM": (HIDDEN, M),
    "wi_EMH": (M, EXPERT_HIDDEN),
    "wo_EHM": (EXPERT_HIDDEN, M),
}


@pytest.fixture(scope="module")
def model():
    config = ModelConfig(
        dim=M,
        ffn_dim=HIDDEN,
        heads=HEADS,
        head_dim=HEAD_DIM,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        moe=MoEConfig(num_experts=EXPERTS, expert_dim=EXPERT_HIDDEN),
    )
    model = Transformer(config, source_vocabulary=500, target_vocabulary=500, shared=False, max_positions=8)
    initialize(model, 1)
    return model


def test_projections_are_glorot_uniform(model):
    """Weights follow Glorot and Bengio (2010), equation 16: uniform up to the root of 6 / (fan in + fan out).

    The standard deviation is that bound divided by the root of 3. With 8,192 draws or more its standard error is 0.5 %,
    and 3 % are allowed. The largest of so many draws is within 1 % of the bound.
    """
    leaves = set()
    for name, parameter in model.named_parameters():
        leaf = name.rpartition(".")[2]
        if leaf in GLOROT:
            leaves.add(leaf)
            bound = math.sqrt(6 / sum(GLOROT[leaf]))
            assert bound * 0.99 < parameter.abs().max() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03), name
    assert leaves == set(GLOROT)


@pytest.mark.parametrize(("leaf", "deviation"), [("_VM", M**-0.5), ("wg_EM", 0.1 * M**-0.5)])
def test_embeddings_and_routers_are_normal(model, leaf, deviation):
    """Embeddings times the root of M have variance 1. A router has 256 draws: one standard error is 4.4 %."""
    parameters = [parameter for name, parameter in model.named_parameters() if name.endswith(leaf)]
    assert len(parameters) == 2
    for parameter in parameters:
        assert parameter.std().item() == pytest.approx(deviation, rel=0.15)


def test_norms_change_nothing(model):
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 2 * 2 + 2 * 3 + 2
    for norm in norms:
        assert (norm.weight == 1).all()
        assert (norm.bias == 0).all()
