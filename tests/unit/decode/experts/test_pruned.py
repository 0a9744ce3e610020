"""A pruned model equals the whole model whose other experts have router logits of -inf; and the choice of experts."""

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.commands.prune import _cost
from pipeline.decode.experts.pruned import cut
from pipeline.decode.experts.pruning import Pruning, check_experts, check_gates
from pipeline.decode.experts.ranking import choose, score
from pipeline.decode.job import routing
from pipeline.decode.job.routing import Recorder
from pipeline.decode.search.search import Request, search
from pipeline.model.config import MoEConfig
from pipeline.model.flops import count_parameters, network_parameters
from pipeline.model.moe import router_chunks, routers
from pipeline.model.moe.gates.config import BalancedConfig
from tests.gates import GATES, gates_where, moe_of
from tests.unit.decode.search.test_beam import SOURCES, config
from tests.unit.model.test_transformer import MODERN, built, random_pairs, small

PRUNABLE = gates_where(lambda gate: not gate.unprunable)
KEPT = {"encoder.2": [0, 2], "decoder.2": [1, 2, 3], "decoder.4": [0, 3]}
DATA = random_pairs(12, seed=3)


def model_of(gate, **blocks):
    """Return a float64 model whose routers have random weights, even for gates that start at zero."""
    model = built(small(moe=moe_of(gate), **blocks))
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for layer in model.moe_layers().values():
            for parameter in layer.router.parameters():
                parameter.normal_(0.0, 0.5, generator=source)
        model.target_embedding_VM.mul_(3.0)
    return model.double().eval()


def batch(numbers=range(12)):
    return assemble([[(0, index)] for index in numbers], GroupShape(rows=len(numbers), source=8, target=8), [DATA])


def mask_logits(model, monkeypatch):
    """Set the router logits of experts that are not kept to -inf, in the function with which routers compute them."""
    banned = {}
    for name, layer in model.moe_layers().items():
        rows = [e for e in range(layer.num_experts) if e not in KEPT[name]]
        banned[layer.router.wg_EM.data_ptr()] = rows
        if (bias_E := getattr(layer.router, "bias_E", None)) is not None:
            bias_E[rows] = -torch.inf  # of a sigmoid, which is 0 for a logit of -inf, and no worse than that
    linear = torch.nn.functional.linear

    def masked(x_GSM, weight_EM, *rest):
        logits_GSE = linear(x_GSM, weight_EM, *rest)
        if (rows := banned.get(weight_EM.data_ptr())) is not None:
            logits_GSE[..., rows] = -torch.inf
        return logits_GSE

    for module in (routers, router_chunks):
        monkeypatch.setattr(module.F, "linear", masked)


def translations(model):
    return [best.tokens for best, *_ in search(model, [Request(source=source) for source in SOURCES], config())]


@pytest.mark.parametrize("gate", PRUNABLE)
def test_equals_the_whole_model_with_masked_logits(gate, monkeypatch):
    whole, pruned = model_of(gate), model_of(gate)
    cut(pruned, KEPT)
    with torch.inference_mode():
        before = whole(batch(), label_smoothing=0.0).nll_BT
        after = pruned(batch(), label_smoothing=0.0).nll_BT
        with monkeypatch.context() as patch:
            mask_logits(whole, patch)
            masked = whole(batch(), label_smoothing=0.0).nll_BT
            expected = translations(whole)
    torch.testing.assert_close(after, masked, atol=1e-12, rtol=0)  # a matmul of another size rounds differently
    assert not torch.allclose(after, before, atol=1e-3)
    assert translations(pruned) == expected


@pytest.mark.parametrize(("blocks", "matrices"), [({}, 2), (MODERN, 3)], ids=["relu", "modern"])
def test_memory_is_that_of_the_experts_that_are_kept(blocks, matrices):
    pruned = model_of("top2", **blocks)
    parameters = sum(p.numel() for p in pruned.parameters())
    cut(pruned, KEPT)
    removed = sum(4 - len(experts) for experts in KEPT.values())
    assert network_parameters(pruned.config, pruned.config.moe.expert_dim) == matrices * 16 * 16
    of_expert = network_parameters(pruned.config, pruned.config.moe.expert_dim) + 16
    assert sum(p.numel() for p in pruned.parameters()) == parameters - removed * of_expert
    for layer, kept in zip(pruned.moe_layers().values(), KEPT.values(), strict=True):
        assert layer.num_experts == len(layer.experts.wi_EMH) == len(kept)
        assert layer.experts.wi_EMH.untyped_storage().nbytes() == len(kept) * 16 * 16 * 8
    counted = count_parameters(pruned.config, source_vocabulary=50, target_vocabulary=50, shared=False)
    assert counted.total == parameters


@pytest.mark.parametrize("gate", PRUNABLE)
def test_the_parameters_that_the_command_counts_are_those_of_the_models(gate, tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"source_size": 50, "target_size": 50, "shared": False}))
    model = model_of(gate)
    pruning = Pruning(run="r", model="m", pairs=[], num_experts=4, experts=KEPT, how={}, statistics={})
    cost = _cost(SimpleNamespace(vocabulary=SimpleNamespace(path=tmp_path)), model.config, pruning)
    before = sum(p.numel() for p in model.parameters())
    cut(model, KEPT)
    assert (cost["parameters_before"], cost["parameters_after"]) == (before, sum(p.numel() for p in model.parameters()))


@pytest.mark.parametrize("gate", sorted({*GATES} - {*PRUNABLE}))
def test_gates_that_need_all_their_experts_refuse(gate):
    kind = "topk" if gate == "node_limited" else gate
    with pytest.raises(ValueError, match=f"the gate {kind} cannot go without some of its experts, because"):
        check_gates(moe_of(gate))


@dataclass(frozen=True, kw_only=True)
class NewGate(BalancedConfig):
    """A gate that no other module has heard of."""

    kind: str = "new"
    unprunable: ClassVar[str] = "nobody has tried"


def test_a_new_gate_is_refused_with_its_own_reason():
    with pytest.raises(
        ValueError, match="the gate new cannot go without some of its experts, because nobody has tried; "
    ):
        check_gates(MoEConfig(num_experts=4, expert_dim=8, gate=NewGate()))


def test_a_dense_model_has_nothing_to_prune():
    with pytest.raises(ValueError, match="dense model, which has no experts"):
        check_gates(small(num_experts=0).moe)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder.4": [3]}, "experts of decoder.4: 1 are kept, and its gate needs at least 2"),
        ({"decoder.4": [3, 0]}, r"experts of decoder.4: \[3, 0\] are not different numbers from 0 to 3 in rising"),
        ({"decoder.4": [0, 4]}, "are not different numbers from 0 to 3"),
        ({"decoder.6": [0, 1]}, "the pruning is of the layers encoder.2, decoder.2, decoder.4, decoder.6, the model"),
    ],
)
def test_a_pruning_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        check_experts(moe_of("top2"), list(KEPT), {**KEPT, **changes})


def test_a_file_that_is_no_pruning_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"experts=.*there.json cannot be read"):
        Pruning.read(tmp_path / "there.json")
    (tmp_path / "there.json").write_text(json.dumps({"experts": KEPT}))
    with pytest.raises(ValueError, match=r"experts=.*there.json is no pruning \(run is not set\)"):
        Pruning.read(tmp_path / "there.json")


@pytest.mark.parametrize("gate", ["top1", "top2"])
def test_what_is_recorded_is_what_the_router_chose(gate, monkeypatch):
    """The reference is the router's softmax for each real token."""
    model, name = model_of(gate), "decoder.4"
    layer = model.moe_layers()[name]
    inputs = []
    layer.router.register_forward_hook(lambda _, arguments, __: inputs.append(arguments))
    sentences = (range(7), range(7, 12))  # of each pair
    with Recorder(model, ["de-en", "fr-en"]) as recorder, torch.inference_mode():
        for pair, numbers in enumerate(sentences):
            shape = GroupShape(rows=len(numbers), source=9, target=8)
            recorder.batch = assemble([[(pair, i)] for i in numbers], shape, [DATA, DATA])
            model(recorder.batch, label_smoothing=0.0)
    model(batch(), label_smoothing=0.0)  # this is not recorded
    k = 1 if gate == "top1" else 2
    for pair, (x_GSM, tokens) in enumerate(inputs[:2]):
        gates_TE = (x_GSM[tokens.valid_GS] @ layer.router.wg_EM.T).softmax(dim=-1)
        value_TK, expert_TK = gates_TE.topk(k)
        weight_TK = value_TK / value_TK.sum(dim=1, keepdim=True) if k == 2 else value_TK
        expected = torch.zeros(4, 4, dtype=torch.float64)
        for experts, weights in zip(expert_TK.tolist(), weight_TK.tolist(), strict=True):
            expected[2, experts[0]] += 1
            expected[3, experts[0]] += weights[0]
            for expert, weight in zip(experts, weights, strict=True):
                expected[0, expert] += 1
                expected[1, expert] += weight
        torch.testing.assert_close(recorder.sums[name][pair], expected, atol=1e-5, rtol=0)
        num_tokens = sum(len(DATA.target(i)) for i in sentences[pair])
        assert recorder.tokens[name][pair] == len(gates_TE) == num_tokens
    record = recorder.to_json(["de-en", "fr-en"])[name]["fr-en"]
    assert set(record) == {"tokens", *routing.MEASURES}


STATISTICS = {"tokens": 10, "chosen": [9, 6, 5, 0], "weight": [5.0, 4.0, 1.0, 0.0]} | {
    "first": [4, 5, 1, 0],
    "first_weight": [4.0, 2.5, 0.6, 0.0],
}


def test_scores_by_hand():
    assert score([STATISTICS], "top1") == [0.4, 0.5, 0.1, 0]
    assert score([STATISTICS], "weight") == [0.5, 0.4, 0.1, 0]
    expected = [0.4 * math.e, 0.5 * math.exp(0.5), 0.1 * math.exp(0.6), 0]
    assert score([STATISTICS], "importance") == pytest.approx(expected)
    large = {**STATISTICS, "tokens": 1000, "first": [0, 0, 0, 1000]}
    assert score([STATISTICS, large], "top1") == [0.2, 0.25, 0.05, 0.5]  # a large pair counts like a small one


def test_chosen_by_hand():
    scores = {"encoder.2": [0.1, 0.4, 0.3, 0.2], "decoder.2": [0.0, 0.9, 0.06, 0.04]}
    least = dict.fromkeys(scores, 2)
    by_layer = choose(scores, keep=0.5, per_layer=True, at_least=least)
    assert by_layer == {"encoder.2": [1, 2], "decoder.2": [1, 2]}
    # the shares before each expert are 0, 0.4, 0.7, 0.9 in the first layer and 0, 0.9, 0.96, 1 in the second
    glob = choose(scores, keep=0.625, per_layer=False, at_least=least)
    assert glob == {"encoder.2": [1, 2, 3], "decoder.2": [1, 2]}
    assert choose(scores, keep=0.75, per_layer=False, at_least=least) == {
        "encoder.2": [0, 1, 2, 3],
        "decoder.2": [1, 2],
    }
    everything = {name: [0, 1, 2, 3] for name in scores}
    assert choose(scores, keep=1.0, per_layer=True, at_least=least) == everything
    assert choose(scores, keep=1.0, per_layer=False, at_least=least) == everything
    assert choose({"encoder.2": [0.5, 0.5, 0.5]}, keep=0.7, per_layer=True, at_least={"encoder.2": 2}) == {
        "encoder.2": [0, 1]
    }
