"""Forward and backward passes of a small model on a CPU and on the impostor, for comparison."""

import copy
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig
from pipeline.model.decisions import Decisions
from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.vocab.symbols import EOS
from tests.cuda.counting import Counts
from tests.cuda.impostor import CUDA, Impostor, on_cpu
from tests.gates import moe_of

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
SHAPE = GroupShape(rows=4, source=32, target=32)
GROUP = [[(0, 1), (1, 2)], [(1, 3)], [(0, 4), (0, 5)]]  # of 4 rows, so that one is padding
TARGET_TOKENS = 30
REGULARIZERS = {"shared_experts": 2, "conditional": {"drop": 0.1}, "output_masking": 0.2, "z_weight": 0.001}


class Sentences:
    """Sentences of one language pair, whose lengths differ."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.rows = [[*rng.integers(4, 100, size=rng.integers(4, 12)), EOS] for _ in range(12)]

    def source(self, index):
        return np.array(self.rows[index])

    def target(self, index):
        return np.array(self.rows[-index - 1])


DATA = [Sentences(1), Sentences(2)]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Distances of the impostor's values from those of the CPU.

    loss: in parts of the loss.
    gradient: of all parameters together, in parts of its norm.
    gradients: by parameter, in parts of its gradient's norm; infinite if one side has none.
    usage_equal: all layers sent as many tokens of a pair to an expert.
    counts: of the pass on the impostor, without the copies of its batch.
    """

    loss: float
    gradient: float
    gradients: dict[str, float]
    usage_equal: bool
    counts: Counts

    @property
    def waits(self):
        return set(self.counts.waits)


def config_of(gate, *, dropout=0.0, capacity_factor=None, **changes):
    """Return a small model with experts in every second layer.

    capacity_factor: another one than the gate's.
    changes: of the MoE layers.
    """
    moe = moe_of(gate, **changes)
    if capacity_factor is not None:
        moe = replace(moe, gate=replace(moe.gate, capacity_factor=capacity_factor))
    return ModelConfig(dim=32, ffn_dim=64, heads=2, encoder_layers=2, decoder_layers=2, dropout=dropout, moe=moe)


def built(config):
    model = Transformer(config, source_vocabulary=100, target_vocabulary=100, shared=True, max_positions=64)
    initialize(model, 1)
    return model


def run(model, batch, *, precision, recompute="none", training=True):
    """Return the share of the loss, and the experts' usage. The parameters keep gradients."""
    device = batch.pair_BL.device.type
    model.train(training)
    model.recompute(recompute)
    seed_group(7, 1, 0)
    autocast = torch.autocast(device, dtype=AUTOCAST[precision]) if precision in AUTOCAST else nullcontext()
    with autocast, torch.set_grad_enabled(training):
        losses = model(batch, label_smoothing=0.1)
    share = losses.share(target_tokens=TARGET_TOKENS, nonempty_groups=1)
    if training:
        share.backward()
    return share.detach(), [layer.usage_PE for layer in losses.statistics]


def compare(gate, *, precision="fp32", training=True, **changes):
    """Compare one pass. The impostor repeats the routers' decisions of the CPU, which rounding could change."""
    model, batch = built(config_of(gate, **changes)), assemble(GROUP, SHAPE, DATA)
    cuda_model = copy.deepcopy(model)
    decisions = []
    for layer in model.moe_layers().values():
        layer.decisions = Decisions()
        decisions.append(layer.decisions)
    loss, usage = run(model, batch, precision=precision, training=training)
    with Impostor() as impostor:
        cuda_model, cuda_batch = impostor.model(cuda_model), batch.to(CUDA)
        for layer, decision in zip(cuda_model.moe_layers().values(), decisions, strict=True):
            layer.decisions = Decisions(decision.recorded_N.to(CUDA))
        impostor.counts = Counts()
        cuda_loss, cuda_usage = run(cuda_model, cuda_batch, precision=precision, training=training)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    cuda_gradients = {
        name: parameter.grad if parameter.grad is None else on_cpu(parameter.grad)
        for name, parameter in cuda_model.named_parameters()
    }
    return Comparison(
        loss=distance(loss, on_cpu(cuda_loss)),
        gradient=distance(in_a_row(gradients), in_a_row(cuda_gradients)),
        gradients={name: distance(gradient, cuda_gradients[name]) for name, gradient in gradients.items()},
        usage_equal=all(torch.equal(a, on_cpu(b)) for a, b in zip(usage, cuda_usage, strict=True)),
        counts=impostor.counts,
    )


def in_a_row(gradients):
    """Return all gradients as one vector; None without any."""
    vectors = [gradient.flatten() for gradient in gradients.values() if gradient is not None]
    return torch.cat(vectors) if vectors else None


def distance(value, cuda_value):
    """Return the norm of the difference in parts of the norm. Infinite if one side has no value."""
    if (value is None) != (cuda_value is None):
        return float("inf")
    return 0.0 if value is None else float((value - cuda_value).norm() / value.norm().clamp(min=1e-12))


def recomputed(gate, *, precision, recompute):
    """Return loss and gradients of a pass with dropout on the impostor, and where the host waited."""
    with Impostor() as impostor:
        model, batch = impostor.model(built(config_of(gate, dropout=0.1))), assemble(GROUP, SHAPE, DATA).to(CUDA)
        impostor.counts = Counts()
        loss, _ = run(model, batch, precision=precision, recompute=recompute)
        values = {
            "loss": on_cpu(loss),
            **{name: on_cpu(p.grad) for name, p in model.named_parameters() if p.requires_grad},
        }
        return {name: value.numpy() for name, value in values.items()}, set(impostor.counts.waits)
