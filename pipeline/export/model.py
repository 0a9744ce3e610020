"""The model of a run, to export."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from pipeline.decode.checkpoints import choose
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.engine.checkpoint.weights import read_state
from pipeline.export.extraction import extract, extracted
from pipeline.finished_run import FinishedRun
from pipeline.model.config import ModelConfig
from pipeline.model.transformer import Transformer
from pipeline.schema import build
from pipeline.vocab.tokenizer import Vocabulary


def load(
    run: FinishedRun,
    decode: DecodeConfig,
    check: Callable[[ModelConfig, Vocabulary], None],
    pairs: Sequence[str] = (),
) -> tuple[Transformer, Vocabulary]:
    """Load the model that the run translates with, averaged if the run averages, in float32.

    check: is called with the model's configuration before the weights are read.
    pairs: the pairs, `de:en`, whose dense model is taken out of the run's; none loads the run's model.
    """
    checkpoints, vocabulary = run.model.path / "checkpoints", Vocabulary.load(run.vocabulary.path)
    trained = build(ModelConfig, read_state(choose(checkpoints, decode)[0])["model"])
    check(extracted(trained, pairs) if pairs else trained, vocabulary)
    longest = run.max_source_tokens
    config = replace(decode, precision="fp32")
    model = load_model(checkpoints, vocabulary, longest=longest, config=config, device=torch.device("cpu"))
    if pairs:
        extract(model, pairs)
    return model, vocabulary
