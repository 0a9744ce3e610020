"""The dense model of some language pairs, taken out of a model whose gates choose experts by task (arXiv:2110.03742).

M model, H hidden size of an expert, E experts, K experts of a task, P language pairs.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from pipeline.model.config import Activation, ModelConfig, MoEConfig
from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.model.moe.layer import MoE
from pipeline.model.moe.routers import TaskRouter
from pipeline.model.transformer import Transformer
from pipeline.train.upcycling import DENSE


def extracted(config: ModelConfig, pairs: Sequence[str]) -> ModelConfig:
    """Return the configuration of the dense model of these pairs, `de:en`.

    Its `ffn_dim` is the widest one of its layers. A layer that had experts may have another width than the others.
    Raises ValueError if another thing than the task decides what the layers compute.
    """
    moe = config.moe
    if not config.moe_layers():
        raise ValueError("PAIR: the run is a dense model already; leave PAIR out to export it")
    if moe.conditional is not None:
        raise ValueError(
            "PAIR: model.moe.conditional mixes experts and a shared network token by token, so that no pair has a "
            "dense model; leave PAIR out"
        )
    widths = [config.ffn_dim]
    for name, gate in (("gate", moe.gate), ("encoder_gate", moe.encoder_gate)):
        if gate is not None and not isinstance(gate, TaskConfig):
            raise ValueError(
                f"PAIR: model.moe.{name} (kind={gate.kind}) chooses experts token by token, so that no pair has a "
                "dense model; leave PAIR out, train with gate=task, or distil the run (docs/distillation.md)"
            )
        widths += [gate.k * moe.expert_dim + moe.shared_dim] if gate is not None else []
    for pair in pairs:
        if pair not in moe.pairs:
            raise ValueError(f"PAIR={pair}: the model was trained on {', '.join(moe.pairs)}; choose among these")
    return replace(config, ffn_dim=max(widths), moe=MoEConfig())


@torch.no_grad()
def extract(model: Transformer, pairs: Sequence[str]) -> None:
    """Turn the model into the dense model of these pairs, in place. Other pairs lose their experts.

    A layer's K experts and its shared experts become one network. Its weights are theirs, bit for bit, if
    `output_scale` is 1; otherwise the output weights are multiplied by it. Biases of outputs are added.
    Raises ValueError as `extracted`, and if the pairs have different experts.
    """
    config = extracted(model.config, pairs)
    pair_P = torch.tensor([model.config.moe.pairs.index(pair) for pair in pairs])
    for name, network in model.moe_layers().items():
        assert isinstance(network.router, TaskRouter)
        experts_PK = network.router.experts_of(pair_P).tolist()
        experts = experts_PK[0]
        for pair, experts_of_pair in zip(pairs, experts_PK, strict=True):
            if set(experts_of_pair) != set(experts):
                raise ValueError(
                    f"PAIR: {pairs[0]} and {pair} have different experts in {name} ({experts} and {experts_of_pair}); "
                    "export each of them alone"
                )
        side, _, number = name.partition(".")
        model.get_submodule(f"{side}.layers.{int(number) - 1}").feed_forward = _joined(network, experts)
    model.config = config


def _joined(network: MoE, experts: Sequence[int]) -> FeedForward:
    """Return one network with the hidden units of these experts and of the shared ones, whose outputs it adds."""
    stacks, shared, scale = network.experts, network.shared_experts, network.config.output_scale
    activation: Activation = "relu" if stacks.wu_EMH is None else "swiglu"
    dense = FeedForward(1, 1, activation, biases=stacks.bi_E1H is not None)  # every parameter is replaced
    for stacked, name in DENSE.items():
        if getattr(dense, name) is None:
            continue
        parts = [getattr(stacks, stacked)[expert] for expert in experts]
        if "_E1" in stacked:
            parts = [part.squeeze(0) for part in parts]
        if name in ("wo_HM", "bo_M") and scale != 1:
            parts = [part * scale for part in parts]
        parts += [getattr(shared, name)] if shared is not None else []
        letters = name.rpartition("_")[2]
        joined = torch.cat(parts, dim=letters.index("H")) if "H" in letters else torch.stack(parts).sum(dim=0)
        setattr(dense, name, nn.Parameter(joined))
    return dense
