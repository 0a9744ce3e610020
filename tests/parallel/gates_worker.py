"""One of two processes compares every gate, with experts cut over two processes, with the whole model.

An error names the gate and the tensor. Run by test_gates.py with RANK, WORLD_SIZE and BABELSHARD_RENDEZVOUS.
"""

import os

import numpy as np
import torch
import torch.distributed as dist

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.jobs.rendezvous import join_job
from pipeline.model.config import ModelConfig
from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters, partition
from pipeline.vocab.symbols import EOS
from tests.gates import GATES, moe_of

NUM_GROUPS = 4
SHAPE = GroupShape(rows=3, source=20, target=16)


class Sentences:
    """Random sentences of one language pair."""

    def __init__(self):
        rng = np.random.default_rng(1)
        self.rows = [[*rng.integers(5, 50, size=rng.integers(1, 8)), EOS] for _ in range(40)]

    def source(self, index):
        return np.array(self.rows[index])

    def target(self, index):
        return np.array(self.rows[39 - index])


def groups():
    full = [[[(0, 6 * g + 2 * row), (1, 6 * g + 2 * row + 1)] for row in range(3)] for g in range(NUM_GROUPS - 1)]
    return [*full, []]


def built(config):
    model = Transformer(config, source_vocabulary=50, target_vocabulary=50, shared=False, max_positions=32)
    initialize(model, 1)
    return model.double()


def run(model, indices, *, training):
    """Return the loss of some groups, one per micro-batch, and the usage of every layer. The model keeps gradients."""
    model.train(training)
    total, usage = 0.0, 0
    data = [Sentences(), Sentences()]
    for index in indices:
        seed_group(7, 1, index)
        losses = model(assemble(groups()[index], SHAPE, data), label_smoothing=0.1)
        auxiliary = torch.stack([s.loss for s in losses.statistics]).sum()
        loss = losses.loss / 100 + auxiliary / (NUM_GROUPS - 1)
        if training:
            loss.backward()
        total += float(loss.detach())
        usage = usage + torch.stack([s.usage_PE for s in losses.statistics])
    return torch.tensor(total, dtype=torch.float64), usage


def check(gate, mesh, rank):
    moe = moe_of(gate, shared_experts=2, z_weight=0.01, output_masking=0.1, conditional={"drop": 0.1})
    config = ModelConfig(dim=16, ffn_dim=32, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.1, moe=moe)
    whole, cut = built(config), built(config)
    partition(cut, mesh)
    experts = expert_parameters(cut)
    for training in (True, False):
        loss, usage = run(whole, range(NUM_GROUPS), training=training)
        cut_loss, used = run(cut, range(rank, NUM_GROUPS, 2), training=training)
        dist.all_reduce(cut_loss)
        dist.all_reduce(used)
        assert torch.equal(used, usage), f"{gate}: usage differs, training={training}"
        torch.testing.assert_close(cut_loss, loss, atol=1e-12, rtol=1e-12, msg=lambda m: f"{gate}: loss: {m}")
    for (name, reference), parameter in zip(whole.named_parameters(), cut.parameters(), strict=True):
        gradient = parameter.grad
        if name in experts:
            expected_gradient = reference.grad.chunk(2)[rank]
        else:
            expected_gradient = reference.grad
            if gradient is not None:
                dist.all_reduce(gradient)
        assert (gradient is None) == (expected_gradient is None), f"{gate}: {name}"
        if gradient is not None:
            torch.testing.assert_close(
                gradient, expected_gradient, atol=1e-12, rtol=1e-10, msg=lambda m, n=name: f"{gate}: {n}: {m}"
            )


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    device = torch.device("cpu")
    join_job(device=device, timeout=60)
    mesh = Mesh.build(Layout.gshard(2, 2), device)
    for gate in GATES:
        check(gate, mesh, rank)
        print(gate, flush=True)
    dist.barrier()
    os._exit(0)  # like a real job, because gloo's destructors abort if a peer is gone
