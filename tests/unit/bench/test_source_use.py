"""The loss of references beside their own sources and beside others."""

import pytest
import torch

from bench.experiment.source_use import loss
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from tests.golden.test_export import logits_of
from tests.unit.decode.conftest import vocabulary  # noqa: F401 - a fixture
from tests.unit.decode.text.test_translator import TURKISH
from tests.unit.model.test_transformer import small


def test_it_is_the_mean_over_the_tokens_that_decoding_step_by_step_would_find(vocabulary):  # noqa: F811
    sizes = {"source_vocabulary": vocabulary.source_size, "target_vocabulary": vocabulary.target_size}
    model = Transformer(small(), **sizes, shared=False, max_positions=100)
    initialize(model, 1)
    model.eval()
    sources = vocabulary.encode_source(TURKISH[:5] * 4, "en")  # more than a batch
    targets = vocabulary.encode_target(["Click File.", "Open it.", "Save", "the document", "a long line of words"] * 4)
    nats = []
    with torch.inference_mode():
        for source, target in zip(sources, targets, strict=True):
            (logits,) = logits_of(model, [source], [target])
            nats += (-logits.double().log_softmax(-1)[range(len(target)), target]).tolist()
    assert loss(model, sources, targets) == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    assert loss(model, sources[1:] + sources[:1], targets) != pytest.approx(sum(nats) / len(nats), rel=1e-3)
