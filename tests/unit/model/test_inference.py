"""The feed-forward part of a decoding step equals that of evaluation."""

import pytest
import torch
from torch import nn

from pipeline.model.inference import choose_route, feed_forward
from pipeline.model.moe.routers import Top1Router
from pipeline.model.moe.tokens import Tokens
from tests.gates import PAIRS, moe_of
from tests.unit.model.test_transformer import MODERN, MOE_LAYERS, NAMES, built, small


@pytest.mark.parametrize("moe", MOE_LAYERS, ids=NAMES)
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("blocks", [{}, MODERN], ids=["relu", "modern"])
def test_output_is_that_of_evaluation(moe, share, blocks):
    model = built(small(moe=moe, **blocks)).eval().double()
    layer = model.decoder.layers[1]
    source = torch.Generator().manual_seed(1)
    y = torch.randn(20, 16, generator=source, dtype=torch.float64)
    live = torch.rand(20, generator=source) < share
    pairs = torch.arange(20) % len(PAIRS)
    expected, _ = layer.transform(y, Tokens.of_mask(live.unsqueeze(1), pairs, len(PAIRS)))
    with torch.inference_mode():
        output = feed_forward(layer, y, live, pairs)
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)
    with torch.inference_mode():
        torch.testing.assert_close(feed_forward(layer, y, None, pairs)[live], expected[live], atol=1e-12, rtol=0)


def test_a_router_that_only_inherits_keeps_its_own_routing():
    class FirstExpertRouter(Top1Router):
        """A router that sends every token to expert 0."""

        def forward(self, x_GSM, tokens):
            return super().forward(torch.zeros_like(x_GSM), tokens)

    layer = built(small(moe=moe_of("top1"))).eval().double().decoder.layers[1]
    router = FirstExpertRouter(16, 4, layer.feed_forward.config.gate, with_z=False)
    layer.feed_forward.router = router.double().eval()
    nn.init.normal_(router.wg_EM)
    with torch.inference_mode():
        route = choose_route(
            layer.feed_forward, torch.randn(5, 16, dtype=torch.float64), torch.ones(5, dtype=torch.bool)
        )
    assert route.counts_E.tolist() == [5, 0, 0, 0]
