"""Router z-loss (ST-MoE, arXiv:2202.08906, equation 5) and entropy of a gate equal float64 loops and hand figures."""

import math

import pytest
import torch

from pipeline.model.moe.router_loss import entropy_sum, z_loss


def sample(seed):
    source = torch.Generator().manual_seed(seed)
    valid = torch.rand(3, 20, generator=source) > 0.3
    valid[1] = False
    return torch.randn(3, 20, 6, generator=source, dtype=torch.float64) * 3, valid


def test_z_loss_equals_the_loop_of_the_paper():
    logits, valid = sample(1)
    losses = z_loss(logits, valid)
    for g in range(3):
        squares = [math.log(sum(map(math.exp, logits[g, s].tolist()))) ** 2 for s in range(20) if valid[g, s]]
        assert losses[g].item() == pytest.approx(sum(squares) / max(len(squares), 1), rel=1e-12)


def test_z_loss_by_hand():
    """The logsumexp of (ln 1, ln 3) is ln 4, that of (ln 2, ln 6) is ln 8. The third token is padding."""
    logits = torch.tensor([[[1.0, 3.0], [2.0, 6.0], [1e6, 1e6]]], dtype=torch.float64).log()
    losses = z_loss(logits, torch.tensor([[True, True, False]]))
    assert losses.tolist() == pytest.approx([(math.log(4) ** 2 + math.log(8) ** 2) / 2])


def test_gradient_of_the_z_loss():
    logits, valid = sample(2)
    assert torch.autograd.gradcheck(lambda logits: z_loss(logits, valid), logits.requires_grad_())
    (gradient,) = torch.autograd.grad(z_loss(logits, valid).sum(), logits)
    assert gradient[~valid].abs().sum() == 0
    assert (gradient[valid].abs().sum(-1) > 0).all()


def test_entropy_equals_the_loop():
    logits, valid = sample(3)
    gates = logits[valid].softmax(-1).tolist()
    expected = -sum(p * math.log(p) for row in gates for p in row)
    assert entropy_sum(logits, valid).item() == pytest.approx(expected, rel=1e-12)


def test_entropy_by_hand():
    """Entropies are ln 4 for a uniform gate over 4, 1.5 ln 2 for (1/2, 1/4, 1/4, 0), and 0 for gates that underflow."""
    logits = torch.tensor([[[7.0] * 4, [math.log(2), 0, 0, -1e9], [0, 500, 0, 0], [1, 2, 3, 4]]])
    valid = torch.tensor([[True, True, True, False]])
    assert entropy_sum(logits, valid).item() == pytest.approx(math.log(4) + 1.5 * math.log(2), rel=1e-6)
    assert entropy_sum(logits, torch.zeros_like(valid)).item() == 0


def test_precision_and_detachment():
    logits, valid = sample(4)
    logits = logits.bfloat16().requires_grad_()
    assert z_loss(logits, valid).dtype == torch.float32
    before = logits.detach().clone()
    entropy = entropy_sum(logits, valid)
    assert (entropy.dtype, entropy.requires_grad, entropy.dim()) == (torch.float64, False, 0)
    assert torch.equal(logits, before)


def test_entropy_leaves_float32_logits_alone():
    """Logits in float32 are not copied, so nothing may be computed in place."""
    logits, valid = sample(5)
    logits = logits.float()
    before = logits.clone()
    entropy_sum(logits, valid)
    assert torch.equal(logits, before)
