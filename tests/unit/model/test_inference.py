"""The feed-forward part of a decoding step equals that of evaluation."""

import pytest
import torch

from pipeline.model.inference import feed_forward
from pipeline.model.moe.tokens import Tokens
from tests.unit.model.test_transformer import MOE_LAYERS, NAMES, built, small


@pytest.mark.parametrize("moe", MOE_LAYERS, ids=NAMES)
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_output_is_that_of_evaluation(moe, share):
    model = built(small(moe=moe)).eval().double()
    layer = model.decoder.layers[1]
    source = torch.Generator().manual_seed(1)
    y = torch.randn(20, 16, generator=source, dtype=torch.float64)
    live = torch.rand(20, generator=source) < share
    expected, _ = layer.transform(y, Tokens.of_mask(live.unsqueeze(1)))
    with torch.inference_mode():
        output = feed_forward(layer, y, live)
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)
    with torch.inference_mode():
        torch.testing.assert_close(feed_forward(layer, y, None)[live], expected[live], atol=1e-12, rtol=0)
