"""Recomputation saves memory, and changes neither loss nor gradient nor route."""

import gc
import itertools

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from pipeline.model import loss
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.moe import router_chunks
from pipeline.model.noise import seed_group
from pipeline.model.recompute import recomputed_choice
from pipeline.model.transformer import Transformer
from pipeline.verify.batches import SHAPE, VOCABULARY, synthetic_step
from pipeline.verify.config import GATES, model_of

MODES = ["selective", "layers", "all"]


def built(config, recompute):
    sizes = {"source_vocabulary": VOCABULARY, "target_vocabulary": VOCABULARY, "max_positions": SHAPE.source}
    model = Transformer(config, shared=False, **sizes)
    initialize(model, 1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if ".router." in name:  # also those that start at zero, so that tokens differ
                p.normal_(generator=torch.Generator().manual_seed(1))
    model.recompute(recompute)
    return model


def forward(model):
    seed_group(1, 1, 0)
    losses = model(synthetic_step(1, 2).groups[0], label_smoothing=0.1)
    return losses, losses.share(target_tokens=50, nonempty_groups=1)


def everything(model):
    """Return loss, statistics and gradients, those of each layer's auxiliary loss first, as in training."""
    losses, share = forward(model)
    results = [share.detach(), losses.nll_BT]
    for layer, statistics in zip(model.moe_layers().values(), losses.statistics, strict=True):
        parameters = [p for p in layer.router.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(statistics.loss, parameters, retain_graph=True, allow_unused=True)
        results += [statistics.kept, statistics.usage_PE, statistics.entropy]
        results += [gradient for gradient in gradients if gradient is not None]
    share.backward()
    return results + [p.grad for p in model.parameters() if p.requires_grad]


@pytest.fixture
def chunks(monkeypatch):
    """Make several chunks of logits of the vocabulary, and of logits of the routers."""
    monkeypatch.setattr(loss, "CHUNK_TOKENS", 30)
    monkeypatch.setattr(loss, "CHUNK", 1)
    monkeypatch.setattr(router_chunks, "CHUNK", 8 * 40)


@pytest.mark.parametrize(
    "config",
    [*map(model_of, GATES), model_of("top2", activation="swiglu", norm="rms")],
    ids=[*GATES, "swiglu and rms"],
)
@pytest.mark.usefixtures("chunks")
def test_loss_statistics_and_gradients_are_the_same_bits(config):
    """Results are equal with dropout, random routing and every regulariser."""
    reference = everything(built(config, "none"))
    for mode in MODES:
        for result, expected in zip(everything(built(config, mode)), reference, strict=True):
            assert torch.equal(result, expected), mode


@pytest.mark.parametrize("gate", GATES)
def test_routes_stay_those_of_the_first_pass(gate):
    """Tokens keep their experts even if the second logits differ by much more than rounding."""
    model = built(model_of(gate), "all")
    routes, noise = {}, torch.Generator().manual_seed(1)

    def watch(name, router):
        forward = router.forward

        def twice(x_GSM, tokens):
            num_passes = len(routes[name])
            routing = forward(x_GSM + num_passes * torch.randn(x_GSM.shape, generator=noise), tokens)
            route = routing.decision.route()
            routes[name].append((route.token_X, route.row_N, route.live_N))
            return routing

        routes[name], router.forward = [], twice

    for name, layer in model.moe_layers().items():
        watch(name, layer.router)
    _, share = forward(model)
    share.backward()
    for first, second in routes.values():
        assert all(map(torch.equal, first, second))
        assert len(first[0])
    model.recompute("none")  # without replayed decisions, the same noise changes routes
    model.zero_grad()
    forward(model)
    for first, _, free in routes.values():
        assert all(map(torch.equal, first, free)) == (gate == "task")  # which does not look at the tokens


def test_a_part_of_a_router_decides_once():
    x = torch.tensor([[1.0, 2.0], [4.0, 3.0]], requires_grad=True)
    passes = []

    def part(x):
        passes.append(x)
        flipped = x if len(passes) == 1 else x.flip(1)
        return x.square().gather(1, flipped.argmax(dim=1, keepdim=True))

    recomputed_choice(part, x).sum().backward()
    assert len(passes) == 2
    assert x.grad.tolist() == [[0.0, 4.0], [8.0, 0.0]]


def allocations(events):
    for event in events:
        if event.tag.name == "Allocation":
            yield event.start_time_ns, event.extra_fields.alloc_size
        yield from allocations(event.children)


def recorded(run):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        kept = run()
    sizes = [size for _, size in sorted(allocations(record.profiler.kineto_results.experimental_event_tree()))]
    return kept, sizes


def kept_and_peak(model):
    """Return the bytes alive between forward and backward, and the peak during the two, with gradients allocated."""
    forward(model)[1].backward()
    model.zero_grad(set_to_none=False)
    gc.collect()
    share, sizes = recorded(lambda: forward(model)[1])
    share.backward()
    del share
    _, all_sizes = recorded(lambda: forward(model)[1].backward())
    return sum(sizes), max(itertools.accumulate(all_sizes))


@pytest.mark.usefixtures("chunks")
def test_memory_falls_with_every_mode():
    """Memory of 4+4 layers falls: a layer keeps little but its input, instead of some 20 tensors of that size.

    During backward only one layer has its activations.
    """
    moe = MoEConfig(num_experts=2, expert_dim=32)
    config = ModelConfig(dim=64, ffn_dim=64, heads=2, encoder_layers=4, decoder_layers=4, dropout=0.1, moe=moe)
    kept, peak = {}, {}
    for mode in ["none", *MODES]:
        kept[mode], peak[mode] = kept_and_peak(built(config, mode))
    for numbers, most in ((kept, 0.2), (peak, 0.4)):
        assert numbers["all"] < most * numbers["none"], numbers
        for mode in ("selective", "layers"):
            assert 1.5 * numbers["all"] < numbers[mode] < 0.7 * numbers["none"], (mode, numbers)
