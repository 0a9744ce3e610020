"""Softmax gates over many experts. Logits exist for one chunk of tokens at a time, and backward computes them again.

G groups, S tokens of a group, M model, E experts, K choices of a token. With thousands of experts the S · E router
logits, their softmax and its gradient would be the largest tensors of the layer.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.model.moe.gates.choices import Choices, choose
from pipeline.model.moe.router_loss import Observed, observe
from pipeline.model.recompute import recomputed_choice

CHUNK = 1 << 20  # router logits of a chunk of tokens


def choose_from(x_GSM: Tensor, wg_EM: Tensor, k: int, valid_GS: Tensor, *, with_z: bool) -> tuple[Choices, Observed]:
    """Return the k best experts of each token by softmax(x · wg), and the observed statistics of the logits."""
    G, S, _ = x_GSM.shape
    size = max(1, CHUNK // (G * len(wg_EM)))

    def part(x_GSM: Tensor, wg_EM: Tensor, valid_GS: Tensor) -> tuple[Tensor, ...]:
        logits_GSE = F.linear(x_GSM, wg_EM)
        choices, observed = choose(logits_GSE, k, valid_GS), observe(logits_GSE, valid_GS, with_z=with_z)
        z_G = choices.sum_GE.new_zeros(G) if observed.z_loss_G is None else valid_GS.sum(dim=1) * observed.z_loss_G
        statistics = observed.entropy, observed.sampled, observed.not_finite
        return choices.expert_GSK, choices.gate_GSK, choices.sum_GE, z_G, *statistics

    run: Callable[..., tuple[Tensor, ...]] = part
    if size < S and torch.is_grad_enabled():

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            return recomputed_choice(part, *tensors)

    parts = zip(torch.split(x_GSM, size, dim=1), torch.split(valid_GS, size, dim=1), strict=True)
    results = [run(x_GSM, wg_EM, valid_GS) for x_GSM, valid_GS in parts]
    expert, gate, sums, z, entropy, sampled, not_finite = zip(*results, strict=True)
    choices = Choices(
        expert_GSK=torch.cat(expert, dim=1), gate_GSK=torch.cat(gate, dim=1), sum_GE=torch.stack(sums).sum(dim=0)
    )
    z_G = torch.stack(z).sum(dim=0) / valid_GS.sum(dim=1).clamp(min=1)
    observed = Observed(
        z_loss_G=z_G if with_z else None,
        entropy=torch.stack(entropy).sum(),
        sampled=torch.stack(sampled).sum(),
        not_finite=torch.stack(not_finite).sum(),
    )
    return choices, observed
