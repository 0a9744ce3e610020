"""Weight decay of the optimizer's groups."""

import pytest
import torch

from pipeline.engine.optimizer import OptimizerSettings, build_optimizer, set_learning_rate
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.transformer import Transformer


@pytest.mark.parametrize("biases", [False, True])
def test_decay_is_of_matrices_alone_and_goes_with_the_rate_of_a_component(biases):
    """Without a gradient AdamW removes the share rate · weight_decay of the weights and changes nothing else."""
    moe = MoEConfig(num_experts=4, expert_dim=8)
    config = ModelConfig(
        dim=8, ffn_dim=16, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.0, moe=moe, biases=biases
    )
    model = Transformer(config, source_vocabulary=10, target_vocabulary=10, shared=False, max_positions=8).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)  # biases would begin at zero, which does not decay
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    experts = {name for name in before if ".experts." in name}
    settings = OptimizerSettings(weight_decay=0.5, rate_factors={"experts": 0.25, "embeddings": 0.5, "decoder": 2.0})
    optimizer = build_optimizer(model, experts, settings, expert_group="expert")
    set_learning_rate(optimizer.param_groups, 0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        rate = 0.1 * (0.25 if name in experts else 0.5 if name.endswith("embedding_VM") else 1.0)
        rate *= 2.0 if name.startswith("decoder.") else 1.0
        is_vector = parameter.dim() == 1 or name.endswith((".bi_E1H", ".bo_E1M"))
        share = 0.0 if is_vector else rate * 0.5
        torch.testing.assert_close(parameter.detach(), before[name] * (1 - share), msg=lambda m, n=name: f"{n}: {m}")
