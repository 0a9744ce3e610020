"""The configuration of our model that computes what config.json of transformers describes."""

from collections.abc import Mapping
from typing import Any

from pipeline.decode.config import DecodeConfig
from pipeline.imports.checkpoint import CONFIG, GENERATION, LARGEST, Checkpoint
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.moe.gates.config import Top2Config

DENSE, SPARSE = "m2m_100", "nllb-moe"  # model types
LONGEST = 1024  # tokens of a source, where config.json does not say

# Values without which a model would not be ours, with transformers' default for a missing key.
NEEDED: Mapping[str, tuple[Any, Any]] = {
    "activation_function": ("relu", "relu"),
    "scale_embedding": (True, True),
    "tie_word_embeddings": (True, True),
    "bos_token_id": (0, 0),
    "pad_token_id": (1, 1),
    "eos_token_id": (2, 2),
    "decoder_start_token_id": (2, 2),
}
NEEDED_SPARSE: Mapping[str, tuple[Any, Any]] = {
    "router_bias": (False, False),
    "router_dtype": ("float32", "float32"),
    "second_expert_policy": ("all", "all"),
    "moe_eval_capacity_token_fraction": (1.0, 1.0),
}
TWINS = ("attention_heads", "ffn_dim")  # of encoder and decoder, which have one value here


def model_config(checkpoint: Checkpoint) -> ModelConfig:
    """Return the configuration of the model. Raises ValueError for what our model cannot compute."""
    settings = checkpoint.json(CONFIG)
    kind = settings.get("model_type")
    if kind not in (DENSE, SPARSE):
        raise checkpoint.error(
            f"{CONFIG} has model_type={kind}; import reads {DENSE} (M2M100, NLLB-200) and {SPARSE} (NLLB-MoE)"
        )
    needed = {**NEEDED, **(NEEDED_SPARSE if kind == SPARSE else {})}
    for name, (value, default) in needed.items():
        if (there := settings.get(name, default)) != value:
            raise checkpoint.error(f"{CONFIG} has {name}={there}, and our model computes {value} only")
    pairs = [*TWINS, *(("sparse_step",) if kind == SPARSE else ())]
    for name in pairs:
        sides = [_number(checkpoint, settings, f"{side}_{name}") for side in ("encoder", "decoder")]
        if sides[0] != sides[1]:
            raise checkpoint.error(
                f"{CONFIG} has encoder_{name}={sides[0]} and decoder_{name}={sides[1]}, not one value"
            )
    number: dict[str, Any] = {
        field: _number(checkpoint, settings, name)
        for field, name in {
            "dim": "d_model",
            "ffn_dim": "encoder_ffn_dim",
            "heads": "encoder_attention_heads",
            "encoder_layers": "encoder_layers",
            "decoder_layers": "decoder_layers",
        }.items()
    }
    moe = _moe(checkpoint, settings, number["ffn_dim"]) if kind == SPARSE else MoEConfig()
    return ModelConfig(**number, dropout=float(settings.get("dropout", 0.1)), moe=moe, biases=True)


def _moe(checkpoint: Checkpoint, settings: Mapping[str, Any], hidden: int) -> MoEConfig:
    """transformers multiplies the outputs of experts by 1 - moe_token_dropout in evaluation."""
    dropped = float(settings.get("moe_token_dropout", 0.2))
    return MoEConfig(
        num_experts=_number(checkpoint, settings, "num_experts"),
        expert_dim=hidden,
        every=_number(checkpoint, settings, "encoder_sparse_step"),
        gate=Top2Config(),  # batch_prioritized_routing says who is dropped first, and evaluation drops nobody
        output_masking=dropped,
        output_scale=1 - dropped,
    )


def decode_config(checkpoint: Checkpoint, precision: str) -> DecodeConfig:
    """Return the beam search that generation_config.json describes, or else config.json.

    Raises ValueError for a value that the search cannot have.
    """
    settings = {**checkpoint.json(CONFIG), **checkpoint.json(GENERATION, optional=True)}
    penalty = settings.get("length_penalty")
    try:
        return DecodeConfig(
            beam=int(settings.get("num_beams") or 1),
            length_penalty=1.0 if penalty is None else float(penalty),
            length_norm="power",
            no_repeat_ngram=int(settings.get("no_repeat_ngram_size") or 0),
            precision=precision,  # type: ignore[arg-type]  # DecodeConfig checks it
        )
    except (TypeError, ValueError) as error:
        raise checkpoint.error(
            f"the search of {GENERATION} or {CONFIG}: {error}; correct or remove the value"
        ) from error


def longest_source(checkpoint: Checkpoint) -> int:
    """Return the tokens of the longest source, tag and `</s>` counted."""
    return _number(
        checkpoint, {"max_position_embeddings": LONGEST, **checkpoint.json(CONFIG)}, "max_position_embeddings"
    )


def _number(checkpoint: Checkpoint, settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise checkpoint.error(f"{CONFIG} has {name}={value!r}, which must be a number from 1 to {LARGEST}")
    return value
