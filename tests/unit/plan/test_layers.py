"""The layers and chunks of the planner are those of the real model."""

from dataclasses import replace

import pytest
import torch

from pipeline.model import loss
from pipeline.model.moe import experts, router_chunks
from pipeline.model.moe.layer import MoE
from pipeline.model.transformer import Transformer
from pipeline.plan.activations import BLOCK
from pipeline.plan.layers import LOGITS_CHUNK, LOGITS_TOKENS, ROUTER_CHUNK, layer_kinds, logit_chunks
from pipeline.plan.spread import RECOMPUTE
from tests.plans import model_of, setup_of, workload_of


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_the_kinds_of_layers_are_those_of_the_model(recompute) -> None:
    config = model_of(encoder_layers=5, decoder_layers=4)
    with torch.device("meta"):
        model = Transformer(config, source_vocabulary=8, target_vocabulary=8, shared=False, max_positions=8)
    model.recompute(recompute)
    for stack, decoder in ((model.encoder, False), (model.decoder, True)):
        kinds = layer_kinds(config, recompute, decoder=decoder)
        layers = [(isinstance(layer.feed_forward, MoE), layer.recompute) for layer in stack.layers]
        assert [(kind.moe, kind.recompute) for kind in kinds] == layers
        assert all(kind.decoder == decoder for kind in kinds)


def test_the_constants_are_those_of_the_model() -> None:
    assert (LOGITS_CHUNK, LOGITS_TOKENS) == (loss.CHUNK, loss.CHUNK_TOKENS)
    assert (ROUTER_CHUNK, BLOCK) == (router_chunks.CHUNK, experts.BLOCK_HIDDEN)


@pytest.mark.parametrize("rows", [1, 11, 100, 103])
def test_the_chunks_of_logits_are_those_of_the_loss(rows: int) -> None:
    workload = workload_of(target_vocabulary=1 << 14)
    workload = replace(workload, shape=replace(workload.shape, rows=rows))
    chunks: list[int] = []

    def losses(x_TM: torch.Tensor, table_VM: torch.Tensor, target_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chunks.append(len(x_TM))
        return target_T.float(), target_T.float()

    x_TM = torch.empty(workload.target_tokens, 4, device="meta")
    target_T = torch.empty(workload.target_tokens, dtype=torch.int64, device="meta")
    table_VM = torch.empty((1 << 14) // 2, 4, device="meta")
    loss.vocabulary_loss(x_TM, table_VM, target_T, 0.1, recompute=False, losses=losses)
    assert chunks == logit_chunks(workload, setup_of("model", model=2))
