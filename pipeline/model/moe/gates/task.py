"""The gate in which every task has its experts (Kudugunta et al., arXiv:2110.03742, routing by task).

G groups, S tokens of a group, E experts, K choices of a token.
"""

from torch import Tensor

from pipeline.model.moe.gates.choices import balance_loss, choose
from pipeline.model.moe.gates.token_choice import Gating, place
from pipeline.model.precision import at_least_float32


def task_gating(logits_GSE: Tensor, k: int, *, valid_GS: Tensor) -> Gating:
    """Compute the gate from the logits of each token's task. Every token has the k experts with the largest logits.

    The weight of a choice is exactly 1, and its gradient is that of the logarithm of the choice's softmax gate. So the
    k experts are one dense network, and the router still learns which of them help. The balance loss is GShard's, over
    first choices. There is no capacity, because it would cut whole sentences off from their experts.
    Raises ValueError if k exceeds the experts.
    """
    choices = choose(logits_GSE, k, valid_GS)
    log_gate_GSK = at_least_float32(logits_GSE).log_softmax(dim=-1).gather(-1, choices.expert_GSK)
    return place(
        choices.expert_GSK,
        (log_gate_GSK - log_gate_GSK.detach()).exp(),
        valid_GS=valid_GS,
        capacity=None,
        num_experts=choices.num_experts,
        losses={"balance": balance_loss(choices, valid_GS)},
    )
