"""Weight decay of the optimizer's groups."""

import torch

from pipeline.engine.optimizer import OptimizerSettings, build_optimizer, set_learning_rate
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer


def test_decay_is_of_matrices_alone_and_that_of_experts_goes_with_their_rate():
    """Without a gradient AdamW removes the share rate · weight_decay of the weights and changes nothing else."""
    moe = MoEConfig(num_experts=4, expert_dim=8)
    config = ModelConfig(dim=8, ffn_dim=16, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.0, moe=moe)
    model = Transformer(config, source_vocabulary=10, target_vocabulary=10, shared=False, max_positions=8).double()
    initialize(model, 1)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    experts = {name for name in before if ".experts." in name}
    settings = OptimizerSettings(weight_decay=0.5, expert_rate=0.25)
    optimizer = build_optimizer(model, experts, settings, expert_group="expert")
    set_learning_rate(optimizer.param_groups, 0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        share = 0.1 * 0.25 * 0.5 if name in experts else 0.1 * 0.5 if parameter.dim() > 1 else 0.0
        torch.testing.assert_close(parameter.detach(), before[name] * (1 - share), msg=lambda m, n=name: f"{n}: {m}")
