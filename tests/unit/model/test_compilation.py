"""The compiled model computes the same as the model."""

import shutil

import pytest
import torch

from pipeline.model.compilation import compile_layers
from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.verify.batches import SHAPE, VOCABULARY, synthetic_step
from pipeline.verify.config import model_of


def built(**blocks):
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "max_positions": SHAPE.source}
    model = Transformer(model_of("top2", **blocks), shared=False, **sizes)
    initialize(model, 1)
    return model.double()


def loss_and_gradients(model):
    seed_group(1, 1, 0)
    losses = model(synthetic_step(1, 2).groups[0], label_smoothing=0.1)
    loss = losses.share(target_tokens=50, nonempty_groups=1)
    model.zero_grad()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def test_a_missing_compiler_is_named_before_anything_runs(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"no-such-compiler is not found: install g\+\+.*runtime.compile=false"):
        compile_layers(built())


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("blocks", [{}, {"activation": "swiglu", "norm": "rms"}], ids=["relu", "modern"])
def test_loss_and_gradients_are_those_of_eager_and_recomputed_too(blocks):
    """Results agree to 1e-12 in float64 with dropout, because only the order of sums differs.

    Recomputation runs the same compiled code, so its results are bit for bit the same.
    """
    model, compiled = built(**blocks), built(**blocks)
    compile_layers(compiled)
    results = loss_and_gradients(compiled)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    for a, b in zip(results, loss_and_gradients(model), strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)
    for mode in ("selective", "all"):
        compiled.recompute(mode)
        for a, b in zip(loss_and_gradients(compiled), results, strict=True):
            assert torch.equal(a, b), mode
