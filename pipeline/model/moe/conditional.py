"""Conditional MoE routing: a gate decides for each token between the experts and a shared dense network.

G groups, S tokens of a group, M model.
"""

import torch
from torch import Tensor, nn

from pipeline.model.config import Activation, ConditionalConfig
from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe.gates.choices import masked_sum
from pipeline.model.precision import at_least_float32, outside_autocast


class Conditional(nn.Module):
    """The gate and the shared network of CMR (arXiv:2212.07571, section 3; NLLB, arXiv:2207.04672).

    g(x) = sigmoid(w · x), y = (1 - g(x)) · FFN_shared(x) + g(x) · MoE(x). The budget loss is the mean over tokens of
    |g(x) - p|. In training g is zero for a random share of tokens. Rare pairs use the shared network more, which
    over-fits them less than experts do.
    """

    zero_initialized = frozenset({"wc_M"})

    def __init__(
        self,
        dim: int,
        hidden: int,
        config: ConditionalConfig,
        activation: Activation = "relu",
        *,
        biases: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.wc_M = nn.Parameter(torch.empty(dim))
        self.shared = FeedForward(dim, hidden, activation, biases=biases)

    def gate(self, x_GSM: Tensor, valid_GS: Tensor) -> tuple[Tensor, Tensor]:
        """Return g(x) [G, S] in float32, and the budget loss of each group [G]."""
        with outside_autocast(x_GSM):
            gate_GS = torch.sigmoid(at_least_float32(x_GSM) @ self.wc_M)
        budget_GS1 = (gate_GS - self.config.budget).abs().unsqueeze(-1)
        budget_G = masked_sum(budget_GS1, valid_GS).squeeze(-1) / valid_GS.sum(dim=1).clamp(min=1)
        if self.training and self.config.drop:
            gate_GS = gate_GS * (torch.rand(gate_GS.shape, device=gate_GS.device) >= self.config.drop)
        return gate_GS, budget_G

    def forward(self, x_GSM: Tensor, expert_GSM: Tensor, gate_GS: Tensor) -> Tensor:
        """Return the mixture [G, S, M] of the shared network's output and the experts' output."""
        shared_GSM = self.shared(x_GSM).to(expert_GSM.dtype)
        return torch.lerp(shared_GSM, expert_GSM, gate_GS.unsqueeze(-1).to(expert_GSM.dtype))
