"""config.json and generation_config.json of M2M100 and NLLB-MoE in transformers."""

from typing import Any

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.bans import NEVER
from pipeline.export.exportable import has_experts
from pipeline.model.config import ModelConfig
from pipeline.vocab.symbols import BOS, EOS, PAD

MODELLING = "modeling_babelshard"
_IDS = {"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS}


def model_settings(config: ModelConfig, *, vocabulary: int, hidden: int, positions: int) -> dict[str, Any]:
    """Return the content of config.json.

    hidden: hidden size of dense networks and experts.
    positions: tokens of the longest sentence whose positions are prepared; longer ones are possible.
    """
    settings = {
        "model_type": "m2m_100",
        "architectures": ["M2M100ForConditionalGeneration"],
        "vocab_size": vocabulary,
        "d_model": config.dim,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "encoder_ffn_dim": hidden,
        "decoder_ffn_dim": hidden,
        "max_position_embeddings": positions,
        "activation_function": "relu",
        "scale_embedding": True,
        "tie_word_embeddings": True,
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "is_encoder_decoder": True,
        "use_cache": True,
        "torch_dtype": "float32",
        **_IDS,
    }
    return {**settings, **_moe_settings(config)} if has_experts(config) else settings


def _moe_settings(config: ModelConfig) -> dict[str, Any]:
    """Return settings for a router that decides as ours: softmax in float32, both choices kept, no capacity."""
    return {
        "model_type": "nllb-moe",
        "architectures": ["NllbMoeForConditionalGeneration"],
        "auto_map": {"AutoModelForSeq2SeqLM": f"{MODELLING}.BabelshardForConditionalGeneration"},
        "num_experts": config.moe.num_experts,
        "encoder_sparse_step": config.moe.every,
        "decoder_sparse_step": config.moe.every,
        "second_expert_policy": "all",
        "normalize_router_prob_before_dropping": True,
        "batch_prioritized_routing": False,
        "moe_eval_capacity_token_fraction": 1.0,
        "moe_token_dropout": round(1 - config.moe.output_scale, 12),
        "router_bias": False,
        "router_dtype": "float32",
        "router_ignore_padding_tokens": False,
    }


def generation_settings(decode: DecodeConfig, *, max_tokens: int) -> dict[str, Any]:
    """Return the content of generation_config.json: our beam search, as far as transformers can do it.

    There, length_norm is power, and the longest translation has max_tokens whatever the source.
    """
    settings = {
        **_IDS,
        "num_beams": decode.beam,
        "early_stopping": decode.beam > 1,
        "length_penalty": decode.length_penalty,
        "max_new_tokens": max_tokens,
        "suppress_tokens": list(NEVER),
    }
    if decode.beam == 1:
        del settings["early_stopping"], settings["length_penalty"]  # greedy search ignores them, and transformers warns
    if decode.min_length:
        settings["min_new_tokens"] = decode.min_length
    if decode.no_repeat_ngram:
        settings["no_repeat_ngram_size"] = decode.no_repeat_ngram
    return settings
