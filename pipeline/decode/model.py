"""A trained model, whole, for decoding."""

import json
from pathlib import Path

import torch

from pipeline.decode.beam import max_length
from pipeline.decode.config import DecodeConfig
from pipeline.model.config import ModelConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.checkpoint import load_weights, read_state
from pipeline.schema import build
from pipeline.vocab.tokenizer import Vocabulary


def load_model(
    checkpoints: Path, vocabulary: Vocabulary, *, longest: int, config: DecodeConfig, device: torch.device
) -> Transformer:
    """The best checkpoint's model in float32. longest: tokens of the longest source. Raises ValueError if damaged."""
    best = checkpoints / json.loads((checkpoints / "best.json").read_text(encoding="utf-8"))["best"]
    model = Transformer(
        build(ModelConfig, read_state(best)["model"]),
        source_vocabulary=vocabulary.source_size,
        target_vocabulary=vocabulary.target_size,
        shared=vocabulary.shared,
        max_positions=max(longest, max_length(longest, config)),
    )
    load_weights(best, model)
    return model.to(device).eval()
