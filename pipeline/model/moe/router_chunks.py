"""Gates that score many experts. Logits exist for one chunk of tokens at a time, and backward computes them again.

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


def choose_from(
    x_GSM: Tensor,
    wg_EM: Tensor,
    k: int,
    valid_GS: Tensor,
    *,
    with_z: bool,
    sigmoid: bool = False,
    bias_E: Tensor | None = None,
    expert_nodes: int = 1,
    max_nodes: int = 1,
) -> tuple[Choices, Observed]:
    """Return the k best experts of each token by logits x · wg, and the observed statistics of the logits.

    sigmoid, bias_E, expert_nodes, max_nodes: see `choose`.
    """
    G, S, _ = x_GSM.shape
    size = max(1, CHUNK // (G * len(wg_EM)))

    def part(x_GSM: Tensor, wg_EM: Tensor, valid_GS: Tensor) -> tuple[Tensor, ...]:
        logits_GSE = F.linear(x_GSM, wg_EM)
        limit = {"expert_nodes": expert_nodes, "max_nodes": max_nodes}
        choices = choose(logits_GSE, k, valid_GS, sigmoid=sigmoid, bias_E=bias_E, **limit)
        observed = observe(logits_GSE, valid_GS, with_z=with_z, sigmoid=sigmoid)
        z = () if observed.z_loss_G is None else (valid_GS.sum(dim=1) * observed.z_loss_G,)
        statistics = observed.entropy, observed.sampled, observed.not_finite
        return choices.expert_GSK, choices.gate_GSK, choices.sum_GE, *statistics, *z

    run: Callable[..., tuple[Tensor, ...]] = part
    if size < S and torch.is_grad_enabled():

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            return recomputed_choice(part, *tensors)

    parts = zip(torch.split(x_GSM, size, dim=1), torch.split(valid_GS, size, dim=1), strict=True)
    results = [run(x_GSM, wg_EM, valid_GS) for x_GSM, valid_GS in parts]
    expert, gate, *parts_of_sums = zip(*results, strict=True)
    sum_GE, entropy, sampled, not_finite, *z = map(total, parts_of_sums)
    choices = Choices(expert_GSK=joined(expert), gate_GSK=joined(gate), sum_GE=sum_GE)
    z_loss_G = z[0] / valid_GS.sum(dim=1).clamp(min=1) if z else None
    return choices, Observed(z_loss_G=z_loss_G, entropy=entropy, sampled=sampled, not_finite=not_finite)


def joined(parts: tuple[Tensor, ...]) -> Tensor:
    """Join the tokens of all chunks. One chunk needs no kernel."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def total(parts: tuple[Tensor, ...]) -> Tensor:
    """Add the sums of all chunks. One chunk needs no kernel."""
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(dim=0)
