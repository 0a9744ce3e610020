"""The number, size and dtype of messages between processes if heads, hidden units and vocabulary are cut.

A process group that sends nothing stands in for the other processes: shapes and calls are real, numbers are not.
"""

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from pipeline.model.config import ModelConfig
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.parallel.conversions import enter, leave
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.verify.batches import SHAPE, VOCABULARY, synthetic_step
from tests.gates import moe_of

M, LAYERS = 16, 2
SOURCE, TARGET = SHAPE.rows * SHAPE.source, SHAPE.rows * SHAPE.target  # tokens of a group
EVERY_LETTER = {"G": ("data", "expert"), "E": ("expert",), "H": ("model",), "N": ("model",), "V": ("model",)}


@pytest.fixture
def mesh():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    layout = Layout(table=EVERY_LETTER, sizes={"data": 1, "expert": 2, "model": 2})
    yield Mesh.build(layout, torch.device("cpu"))
    dist.destroy_process_group()


@pytest.fixture
def sent(monkeypatch):
    """Record the dtype and the elements of every all-reduce and all-to-all."""
    calls = Counter()

    def note(name):
        original = getattr(dist, name)

        def noting(tensor, *args, **kwargs):
            calls[name, tensor.dtype, tensor.numel()] += 1
            return original(tensor, *args, **kwargs)

        monkeypatch.setattr(dist, name, noting)

    note("all_reduce")
    note("all_to_all_single")
    return calls


def built(mesh):
    """Build a model with two layers on each side. The second one is a MoE layer."""
    config = ModelConfig(
        dim=M,
        ffn_dim=32,
        heads=2,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        dropout=0.1,
        moe=moe_of("top2", conditional=None),
    )
    model = Transformer(
        config, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, shared=False, max_positions=SHAPE.source
    )
    initialize(model, 1)
    partition(model, mesh)
    return model.train()


def test_what_plain_torch_has_in_bf16_travels_in_it(mesh, sent):
    """Under autocast: outputs of layers, and gradients of what goes into attention and feed-forward networks. In
    float32, as in plain torch: gradients of what goes into a MoE layer, where a token's two experts add up, and of its
    combine weights; embeddings; and of the cross-entropy four numbers a target token."""
    model, half, full = built(mesh), torch.bfloat16, torch.float32
    with torch.autocast("cpu", half):
        losses = model(synthetic_step(1, 1).groups[0], label_smoothing=0.1)
    forward = Counter(sent)
    assert {k: v for k, v in forward.items() if k[0] == "all_reduce"} == {
        ("all_reduce", half, SOURCE * M): 2 + 2,  # of both layers: feed-forward network or experts, and attention
        ("all_reduce", half, TARGET * M): 2 + 4,
        ("all_reduce", full, SOURCE * M): 1,  # embeddings
        ("all_reduce", full, TARGET * M): 1,
        ("all_reduce", full, TARGET): 1,  # largest logit
        ("all_reduce", full, 3 * TARGET): 1,
    }
    sent.clear()
    (losses.loss + sum(s.loss for s in losses.statistics)).backward()
    weights = 2  # choices of a token
    assert {k: v for k, v in sent.items() if k[0] == "all_reduce"} == {
        ("all_reduce", half, SOURCE * M): 1 + 2 + 2,  # dense, self-attention, and memory of each decoder layer
        ("all_reduce", half, TARGET * M): 1 + 4 + 1,  # the last: logits
        ("all_reduce", full, SOURCE * M): 1,  # experts
        ("all_reduce", full, TARGET * M): 1,
        ("all_reduce", full, SOURCE * weights): 1,
        ("all_reduce", full, TARGET * weights): 1,
    }
    there_and_back = {k: v for k, v in forward.items() if k[0] == "all_to_all_single"}
    assert there_and_back == {k: v for k, v in sent.items() if k[0] == "all_to_all_single"}
    assert {k[1] for k in there_and_back} == {half}
    assert sorted(there_and_back.values()) == [2, 2]


def test_what_leaves_is_summed_in_place_and_says_so_to_autograd(mesh):
    group = mesh.group("model")
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3, 2, requires_grad=True)
    share = a @ b
    assert leave(share, group) is share
    kept = (a @ b).exp()  # whose backward pass needs its own result
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        leave(kept, group).sum().backward()
    assert leave(torch.ones(2, 3).T, group).is_contiguous()


def test_a_gradient_enters_without_a_copy(mesh, monkeypatch):
    """The all-reduce works in the memory of the product before it."""
    places = []
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, **_: places.append(tensor.data_ptr()))
    x = torch.ones(2, 3, requires_grad=True)
    (enter(x, mesh.group("model")) @ torch.ones(3, 2)).sum().backward()
    assert places == [x.grad.data_ptr()]
