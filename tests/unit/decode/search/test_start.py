"""The ids that every translation begins with are certain, and count as tokens of the translation."""

from dataclasses import replace

import pytest

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.search import Request, search
from tests.unit.decode.search.test_incremental import SOURCES, sharp

CONFIG = DecodeConfig(beam=3, n_best=3, length_norm="power", max_length_ratio=0.0, max_length_extra=8)


@pytest.mark.parametrize("prefix", [[], [9, 8]])
@pytest.mark.parametrize("kind", ["beam", "sample"])
def test_the_start_is_a_prefix_that_counts(kind, prefix):
    """The search is that of a longer prefix: the same tokens with the same probability, over one token more."""
    model, config = sharp(), replace(CONFIG, search=kind, length_penalty=0.0)
    started = search(model, [Request(source=source, start=[7], prefix=prefix) for source in SOURCES], config)
    shorter = replace(config, max_length_extra=7)
    expected = search(model, [Request(source=source, prefix=[7, *prefix]) for source in SOURCES], shorter)
    for hypotheses, longer_prefix in zip(started, expected, strict=True):
        assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in longer_prefix]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx([h.score for h in longer_prefix])
        assert all(hypothesis.tokens[: 1 + len(prefix)] == [7, *prefix] for hypothesis in hypotheses)
    penalized = search(
        model, [Request(source=source, start=[7]) for source in SOURCES[:3]], replace(CONFIG, beam=1, n_best=1)
    )
    plain = search(
        model,
        [Request(source=source, start=[7]) for source in SOURCES[:3]],
        replace(CONFIG, beam=1, n_best=1, length_penalty=0.0),
    )
    for (one,), (other,) in zip(penalized, plain, strict=True):
        length = len(one.tokens) + (len(one.tokens) < 8)  # `</s>` counts where there was room for it
        assert one.score == pytest.approx(other.score / length)
