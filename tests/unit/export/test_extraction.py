"""The dense model of a pair, against the mixture that it is taken out of."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.incremental import DecoderState
from pipeline.decode.search.rows import padded, pair_numbers
from pipeline.decode.search.search import Request, search
from pipeline.export.extraction import extract, extracted
from pipeline.export.weights import hidden_size, named_weights
from pipeline.model.config import ConditionalConfig, MoEConfig
from pipeline.model.moe.gates.config import Top2Config
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.vocab.symbols import EOS
from tests.exports import config_of, random_model
from tests.gates import PAIRS

VOCABULARY = SimpleNamespace(source_size=60, target_size=60, shared=True)
DECODE = DecodeConfig(beam=3, length_penalty=1.0, max_length_ratio=1.0, max_length_extra=4)
BY_PAIR = MoEConfig(num_experts=4, expert_dim=8, gate=TaskConfig()).with_pairs(PAIRS)
CPU = torch.device("cpu")


def mixture(k=1, activation="relu", biases=False, **changes):
    """Return a model with encoder experts by source and decoder experts by target language, in float64."""
    settings = {"gate": TaskConfig(by="target", k=k), "encoder_gate": TaskConfig(by="source", k=k), **changes}
    moe = MoEConfig(num_experts=6, expert_dim=40, **settings).with_pairs(PAIRS)
    return random_model(config_of(moe=moe, activation=activation, biases=biases), VOCABULARY).double()


def dense(model, *pairs):
    """Return the dense model of these pairs, with the model's own weights."""
    copy = type(model)(model.config, source_vocabulary=60, target_vocabulary=60, shared=True, max_positions=320)
    copy.double().load_state_dict(model.state_dict())
    extract(copy, pairs)
    return copy.eval()


def sources(seed, lengths):
    source = torch.Generator().manual_seed(seed)
    return [[*torch.randint(4, 60, (length,), generator=source).tolist(), EOS] for length in lengths]


@torch.inference_mode()
def logits(model, pair):
    """Return the logits of ten steps for sentences of one length, so that all products have the same sizes."""
    requests = [Request(source=source, pair=pair) for source in sources(1, [9] * 5)]
    pairs = pair_numbers(model.config.moe.pairs, requests, CPU)
    state = DecoderState(
        model, padded([request.source for request in requests], CPU), beam=1, max_length=10, pair_n=pairs
    )
    inputs = torch.randint(4, 60, (10, 5), generator=torch.Generator().manual_seed(2))
    return torch.stack([state.step(tokens) for tokens in inputs])


def test_logits_are_those_of_the_mixture_bit_for_bit():
    model = mixture()
    results = {pair: logits(model, pair) for pair in PAIRS}
    for pair, expected in results.items():
        assert torch.equal(logits(dense(model, pair), pair), expected)
    assert not torch.equal(results["de:en"], results["fr:en"])
    assert not torch.equal(results["en:de"], results["en:fr"])


@pytest.mark.parametrize("k", [1, 3])
def test_translations_are_those_of_the_mixture(k):
    """Several experts are one network, whose sums may be in another order."""
    model = mixture(k)
    requests = [Request(source=source, number=n) for n, source in enumerate(sources(3, [3, 9, 5, 12, 7, 4, 8, 2]))]
    of_pairs = {pair: [replace(request, pair=pair) for request in requests] for pair in PAIRS}
    together = search(model, [request for one in of_pairs.values() for request in one], DECODE)
    alone = [hypotheses for pair, one in of_pairs.items() for hypotheses in search(dense(model, pair), one, DECODE)]
    assert [[h.tokens for h in hypotheses] for hypotheses in together] == [[h.tokens for h in a] for a in alone]
    scores = [torch.tensor([h.score for hypotheses in result for h in hypotheses]) for result in (together, alone)]
    torch.testing.assert_close(*scores, atol=1e-12, rtol=0)
    for pair in PAIRS:
        torch.testing.assert_close(logits(dense(model, pair), pair), logits(model, pair), atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    "options", [{"activation": "swiglu"}, {"biases": True, "output_scale": 0.8}], ids=["gated", "biases"]
)
def test_shared_experts_and_options_of_networks_are_in_the_dense_model(options):
    model = mixture(k=2, shared_experts=1, **options)
    for pair in PAIRS:
        one = dense(model, pair)
        assert one.config.ffn_dim == 3 * 40
        torch.testing.assert_close(logits(one, pair), logits(model, pair), atol=1e-10, rtol=0)


def test_several_experts_are_one_wider_network_of_their_own_weights():
    """And an expert that two tasks share is in the dense model of each of them."""
    model = mixture(k=2)
    layer = model.moe_layers()["decoder.2"]
    with torch.no_grad():
        layer.router.wt_TE.zero_()
        for task, experts in enumerate(([4, 1], [1, 5], [0, 2])):  # into en, de and fr
            layer.router.wt_TE[task, experts] = torch.tensor([2.0, 1.0]).double()
    wi, wo = layer.experts.wi_EMH, layer.experts.wo_EHM
    for pair, (first, second) in {"de:en": (4, 1), "en:de": (1, 5), "en:fr": (0, 2)}.items():
        one = dense(model, pair)
        network = one.decoder.layers[1].feed_forward
        assert torch.equal(network.wi_MH, torch.cat((wi[first], wi[second]), dim=1))
        assert torch.equal(network.wo_HM, torch.cat((wo[first], wo[second]), dim=0))
        assert not one.moe_layers()
        assert one.config == extracted(model.config, [pair])
        assert hidden_size(one.config) == one.config.ffn_dim == 80
        assert named_weights(one)["model.decoder.layers.0.fc1.weight"].shape == (80, 32)  # 48 wide in training


def test_pairs_with_the_same_experts_share_a_dense_model():
    model = mixture(encoder_gate=None)
    into_english = [logits(dense(model, "de:en", "fr:en"), pair) for pair in ("de:en", "fr:en")]
    assert torch.equal(*into_english)
    layers = model.moe_layers()
    with torch.no_grad():
        layers["encoder.2"].router.wt_TE[:, 3] = 9.0
        layers["decoder.2"].router.wt_TE[:2] = torch.eye(6)[[2, 5]].double()
    with pytest.raises(ValueError, match=r"PAIR: de:en and en:de have different experts in decoder\.2 \(\[2\] and \[5"):
        extract(model, ["de:en", "en:de"])


@pytest.mark.parametrize(
    ("moe", "message"),
    [
        (MoEConfig(), "PAIR: the run is a dense model already; leave PAIR out"),
        (
            replace(BY_PAIR, encoder_gate=Top2Config()),
            r"PAIR: model\.moe\.encoder_gate \(kind=top2\) chooses experts token by token",
        ),
        (replace(BY_PAIR, conditional=ConditionalConfig()), r"PAIR: model\.moe\.conditional mixes experts"),
        (BY_PAIR, "PAIR=tr:en: the model was trained on de:en, fr:en, en:de, en:fr"),
    ],
)
def test_refusals(moe, message):
    with pytest.raises(ValueError, match=message):
        extracted(config_of(moe=moe), ["tr:en"])
