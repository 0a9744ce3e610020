"""The check that another program can represent a model exactly."""

from pipeline.model.config import ModelConfig
from pipeline.model.moe.gates.config import GATES, GateConfig


def check_huggingface(config: ModelConfig, *, shared: bool) -> None:
    """Raise ValueError where transformers' M2M100 and NLLB-MoE cannot be the same function as the model."""
    if not shared:
        raise ValueError(
            "vocab.shared=false: M2M100 and NLLB-MoE have one vocabulary for both sides; train with vocab: shared "
            "(recipes/export_moe.yaml), or export a dense model with format=ctranslate2"
        )
    check_heads(config)
    for name, value in (("activation", "relu"), ("norm", "layer")):
        if getattr(config, name) != value:
            raise ValueError(
                f"model.{name}={getattr(config, name)}: M2M100 and NLLB-MoE have none but {value}; train with "
                f"model.{name}={value}, or export a dense model with format=ctranslate2"
            )
    if not has_experts(config):
        return
    if config.moe.conditional is not None:
        raise ValueError(
            "model.moe.conditional: NLLB-MoE has no shared network beside the experts; train without it to export"
        )
    if config.moe.shared_experts:
        raise ValueError(
            f"model.moe.shared_experts={config.moe.shared_experts}: NLLB-MoE has no experts beside those that its gate "
            "chooses; train without them to export"
        )
    for name, gate in (("gate", config.moe.gate), ("encoder_gate", config.moe.encoder_gate)):
        if gate is not None:
            _check_gate(gate, name)


def check_ctranslate2(config: ModelConfig) -> None:
    """Raise ValueError where our export to CTranslate2 cannot be the same function as the model."""
    if has_experts(config):
        raise ValueError(
            f"model.moe.num_experts={config.moe.num_experts}: CTranslate2 has no Mixture-of-Experts translation model; "
            "export the dense model of a pair with PAIR if the run has gate=task, distil the run into a dense one "
            "(docs/distillation.md) and export that, or use format=huggingface"
        )
    check_heads(config)
    if config.biases:
        raise ValueError(
            "model.biases=true: this export to CTranslate2 writes no biases; use format=huggingface, and convert "
            "that by ct2-transformers-converter"
        )


def check_heads(config: ModelConfig) -> None:
    """Raise ValueError where heads are not cut out of the model's dimension."""
    if config.key_dim * config.heads != config.dim:
        raise ValueError(
            f"model.head_dim={config.head_dim} times model.heads={config.heads} is not model.dim={config.dim}, and the "
            "exported formats know no other size; train with model.head_dim=0"
        )


def has_experts(config: ModelConfig) -> bool:
    """Return whether a layer of the model is a MoE layer."""
    return config.num_moe_layers(config.encoder_layers) + config.num_moe_layers(config.decoder_layers) > 0


def _check_gate(gate: GateConfig, name: str) -> None:
    """NLLB-MoE's evaluation: softmax over all experts, the best two, their gates divided by their sum, no capacity.

    Noise, jitter, priorities and the draw of a second choice are of training alone; without noise noisy top-k is the
    same function, as a softmax over the two best logits is the softmax over all, normalised over the two.
    """
    if gate.unexportable:
        kinds = [kind for kind, config in GATES.items() if not config().unexportable]
        raise ValueError(
            f"model.moe.{name} (kind={gate.kind}): {gate.unexportable}, while NLLB-MoE gives every token its two best "
            f"experts, weighted by softmax over the two; only gates {', '.join(kinds[:-1])} and {kinds[-1]} with k=2 "
            "translate like that"
        )
