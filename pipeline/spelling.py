"""Names that are spelled like a wrong one, or mean the same, for error messages."""

import difflib
from collections.abc import Iterable, Sequence

# Terms of other toolkits, with the fields that have their meaning here. A term without such a field is not suggested.
_SAME = (
    (("lr", "max_lr", "peak_lr", "learningrate", "step_size"), ("learning_rate",)),
    (("epochs", "num_epochs", "max_epochs", "epoch", "tokens", "budget"), ("max_tokens", "max_steps")),
    (("steps", "iterations", "max_iters", "max_update", "num_train_steps", "train_steps"), ("max_steps",)),
    (("warmup", "warmup_updates", "num_warmup_steps", "warmup_ratio"), ("warmup_steps",)),
    (("scheduler", "lr_scheduler", "lr_schedule"), ("schedule.kind",)),
    (("grad_clip", "max_grad_norm", "gradient_clipping", "clip", "clip_grad_norm"), ("clip_norm",)),
    (("eps", "adam_epsilon", "adam_eps"), ("epsilon",)),
    (("adam_beta1",), ("beta1",)),
    (("adam_beta2",), ("beta2",)),
    (("betas", "adam_betas"), ("beta1", "beta2")),
    (("wd",), ("weight_decay",)),
    (("optim",), ("optimizer",)),
    (("smoothing",), ("label_smoothing",)),
    (("early_stopping", "stop_after"), ("patience",)),
    (("eval_every", "eval_steps", "valid_interval", "validation_interval", "eval_interval"), ("validate_every",)),
    (("log_interval", "logging_steps"), ("log_every",)),
    (("save_interval", "save_steps", "checkpoint_every"), ("save_every",)),
    (("random_seed", "rng_seed"), ("seed",)),
    (("dtype", "fp16", "bf16", "fp32", "amp", "mixed_precision"), ("precision",)),
    (("batch_size", "batchsize", "bsz", "batch_tokens"), ("groups_per_step", "shapes", "batch_tokens")),
    (("gradient_accumulation", "grad_accum", "gradient_accumulation_steps", "update_freq"), ("groups_per_step",)),
    (("max_length", "max_len", "seq_len", "max_seq_len", "sequence_length", "max_source_length"), ("shapes",)),
    (("hidden_size", "d_model", "model_dim", "embed_dim", "embedding_dim", "hidden_dim", "n_embd", "width"), ("dim",)),
    (("d_ff", "ff_dim", "ffn_hidden_size", "intermediate_size", "ffn_embed_dim", "feedforward_dim"), ("ffn_dim",)),
    (("n_heads", "num_heads", "nhead", "attention_heads", "num_attention_heads", "n_head"), ("heads",)),
    (("d_head", "dim_head", "d_kv"), ("head_dim",)),
    (("num_layers", "n_layers", "layers", "depth", "n_layer"), ("encoder_layers", "decoder_layers")),
    (("activation_function", "activation_fn", "hidden_act", "ffn_activation"), ("activation",)),
    (("norm_type", "normalization", "layer_norm", "layernorm"), ("norm",)),
    (("dropout_rate", "drop_rate", "dropout_prob"), ("dropout",)),
    (("experts", "n_experts", "num_local_experts", "expert_count", "moe_experts"), ("num_experts",)),
    (("expert_hidden_size", "moe_dim", "moe_ffn_dim", "expert_ffn_dim"), ("expert_dim",)),
    (("aux_loss_weight", "load_balancing_weight", "aux_loss", "balance_loss"), ("balance_weight",)),
    (("topk", "num_experts_per_tok", "experts_per_token"), ("gate.k", "gate.kind")),
    (("router", "gating", "routing"), ("gate.kind",)),
    (("vocab_size", "vocabulary_size", "num_merges", "bpe_merges"), ("source_size", "target_size")),
    (("joint_vocab", "share_vocab", "shared_vocab"), ("shared",)),
    (("beam_size", "num_beams", "beam_width", "beams"), ("beam",)),
    (("lenpen", "length_alpha"), ("length_penalty",)),
    (("nbest",), ("n_best",)),
    (("num_gpus", "n_gpus", "gpus", "ngpus", "world_size", "nproc", "nproc_per_node"), ("processes", "devices")),
    (("tensor_parallel", "tp", "model_parallel"), ("mp",)),
    (("expert_parallel",), ("ep",)),
    (("cuda",), ("gpu",)),
    (("zero", "zero_optimization"), ("zero_stage",)),
    (("activation_checkpointing", "gradient_checkpointing", "checkpoint_activations"), ("recompute",)),
    (("languages", "langs", "lang_pairs", "language_pairs", "lang_pair", "src_tgt"), ("pairs",)),
    (("data", "dataset", "data_path", "data_dir"), ("corpus.path",)),
    (("output_dir", "save_dir", "run_name", "experiment_name"), ("name",)),
)
_MEANINGS: dict[str, tuple[str, ...]] = {term: fields for terms, fields in _SAME for term in terms}


def nearest_names(name: str, names: Iterable[str], *, most: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the known names that are most like `name`, best first.

    most: names that are returned at most.
    cutoff: least similarity, from 0 to 1 (`difflib.SequenceMatcher.ratio`).
    """
    return difflib.get_close_matches(name, list(names), n=most, cutoff=cutoff)


def names_of_same_meaning(name: str, names: Sequence[str]) -> list[str]:
    """Return the known names that other toolkits call `name`. In dotted keys the last parts count.

    Keys of the section that `name` begins with come first, and alone.
    """
    plain = name.lower().replace("-", "_")
    fields = _MEANINGS.get(plain.replace(".", "_")) or _MEANINGS.get(plain.rpartition(".")[2], ())
    ranked = [candidate for field in fields for candidate in names if f".{candidate}".endswith(f".{field}")]
    section = plain.partition(".")[0]
    return [candidate for candidate in ranked if candidate.startswith(f"{section}.")] or ranked


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean X?` with the known names of the same meaning, else the nearest, or an empty text."""
    choices = list(names)
    return _question(names_of_same_meaning(name, choices) or nearest_names(name, choices))


def suggestion(name: str, names: Iterable[str], *, listing: str = "there are") -> str:
    """Return `; did you mean X?` with the nearest known names, or a list of all of them after the word `listing`."""
    choices = list(names)
    return did_you_mean(name, choices) or f"; {listing} {', '.join(choices) or 'none'}"


def key_suggestion(key: str, keys: Sequence[str]) -> str:
    """Return `; did you mean X?` for a dotted key, else what its section has, or an empty text.

    A key with the same last part in another section is as near as one of the same meaning. Where the section exists,
    only its own keys can be misspelt.
    """
    section, _, last = key.rpartition(".")
    siblings = [name for name in keys if section and name.startswith(f"{section}.")]
    same = [name for name in keys if name.rpartition(".")[2] == last]
    if nearest := names_of_same_meaning(key, keys) or same:
        return _question(nearest[:3])
    if not siblings:
        return _question(nearest_names(key, keys, cutoff=0.7) or nearest_names(key, keys))
    by_part = {name.removeprefix(f"{section}."): name for name in siblings}
    if nearest := nearest_names(last, by_part):
        return _question([by_part[part] for part in nearest])
    return f"; {section} has {', '.join(dict.fromkeys(part.partition('.')[0] for part in by_part))}"


def _question(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
