"""Other implementations of the layer at the same sizes: E experts, top-2, and as many slots as our capacity factor 1.

Each peer is imported in its function, so that a peer that cannot be imported fails alone.
"""

import contextlib
import logging
import os
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.moe.case import Case, Place
from bench.moe.size import Size


def deepspeed(size: Size, place: Place) -> Case:
    """Return DeepSpeed's `MoE` with k = 2, capacity factor 1, no noise, and no sampling of the second expert."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(None):
        warnings.simplefilter("ignore")
        import deepspeed
        from deepspeed.moe.layer import MoE
        from deepspeed.utils import logger

        logger.setLevel(logging.ERROR)
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # or it compiles for 30 s
        if not torch.distributed.is_initialized():
            backend = "gloo" if place.device == "cpu" else "nccl"
            rendezvous = os.environ["BABELSHARD_RENDEZVOUS"]
            torch.distributed.init_process_group(backend, init_method=rendezvous, rank=0, world_size=1)
            deepspeed.init_distributed(dist_backend=backend, verbose=False)
        expert = nn.Sequential(
            nn.Linear(size.model, size.hidden, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(size.hidden, size.model, bias=False),
        )
        moe = MoE(
            size.model,
            expert,
            num_experts=size.experts,
            k=size.k,
            capacity_factor=1.0,
            noisy_gate_policy=None,
            top2_2nd_expert_sampling=False,
        )
        moe.set_deepspeed_parallelism()
    x_SM = place.tokens(size)
    return _case(moe, size, place, x_SM, lambda: moe(x_SM)[:2])


def lucidrains(size: Size, place: Place) -> Case:
    """Return the layer of `mixture-of-experts`, which keeps every second choice.

    Its capacity factor 2 gives as many slots as the others have at 1.
    """
    from mixture_of_experts import MoE

    moe = MoE(
        size.model,
        num_experts=size.experts,
        hidden_dim=size.hidden,
        second_policy_train="all",
        capacity_factor_train=float(size.k),
    )
    x_SM = place.tokens(size)
    return _case(moe, size, place, x_SM, lambda: moe(x_SM.unsqueeze(0)))


def nllb(size: Size, place: Place) -> Case:
    """Return transformers' NLLB-MoE layer, with every second choice and no dropout. Its experts have biases."""
    from transformers import NllbMoeConfig
    from transformers.models.nllb_moe.modeling_nllb_moe import NllbMoeSparseMLP

    config = NllbMoeConfig(
        d_model=size.model,
        num_experts=size.experts,
        expert_capacity=size.capacity,
        second_expert_policy="all",
        router_dtype="float32",
        activation_function="relu",
        activation_dropout=0.0,
        dropout=0.0,
        moe_token_dropout=0.0,
    )
    moe = NllbMoeSparseMLP(config, size.hidden)
    x_SM = place.tokens(size)
    return _case(moe, size, place, x_SM, lambda: moe(x_SM.unsqueeze(0), padding_mask=None)[:1])


def _case(moe: nn.Module, size: Size, place: Place, x_SM: Tensor, forward: Callable[[], tuple[Tensor, ...]]) -> Case:
    moe.to(place.device, place.dtype).train()
    return Case(forward=forward, weights=list(moe.parameters()), inputs=[x_SM], flops=size.flops, place=place)
