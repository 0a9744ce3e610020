"""The planner's memory against that of built models. A whole step is measured in tests/parallel/test_memory.py."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from bench.plan.case import Case
from bench.plan.worker import tokens
from pipeline.jobs.matmul import matmul_library
from pipeline.model.adapters import add_adapters
from pipeline.model.components import is_trainable
from pipeline.model.config import ConditionalConfig
from pipeline.model.lora import LoraConfig
from pipeline.model.moe.gates.config import DroplessConfig
from pipeline.model.transformer import Transformer
from pipeline.plan.activations import segments
from pipeline.plan.memory import memory, phases, state_of
from pipeline.plan.workload import Adapters
from tests.gates import GATES, moe_of
from tests.plans import device_of, setup_of, workload_of

SMALL = Case(dim=32, layers=4, experts=8, rows=4, length=24, vocabulary=100)


def kept_by(workload, recompute):
    """Return the bytes that a forward pass saves for backward, without parameters, positions and the batch."""
    model = Transformer(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
        max_positions=workload.shape.source,
    )
    if adapters := workload.adapters:
        add_adapters(model, LoraConfig(rank=adapters.rank, targets=list(adapters.targets), dropout=adapters.dropout))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and is_trainable(name, workload.trainable))
        torch.nn.init.normal_(parameter, 0.0, 0.1)
    model.recompute(recompute)
    batch = tokens(replace(SMALL, vocabulary=workload.target_vocabulary))
    inputs = [*model.parameters(), model.positions, *(getattr(batch, field.name) for field in fields(batch))]
    input_storages = {t.untyped_storage().data_ptr() for t in inputs if isinstance(t, Tensor)}
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in input_storages:
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)  # kept alive, so that its address is not used again
        return tensor

    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=workload.precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), bf16:
        model(batch, label_smoothing=0.1)
    return sum(size for size, _ in saved.values())


@pytest.mark.parametrize("recompute", ["none", "selective", "layers", "all"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("blocks", [{}, {"activation": "swiglu"}, {"norm": "rms"}, {"biases": True}], ids=str)
def test_activations_are_those_that_autograd_keeps(recompute, precision, blocks, fastest_matmul):
    case = replace(SMALL, recompute=recompute, precision=precision)
    workload = replace(case.workload, model=replace(case.workload.model, **blocks))
    wide = matmul_library() == "onednn"
    parts = segments(workload, case.setup, "cpu", float32_attention=wide)
    predicted = sum(part.kept for part in parts)
    assert predicted == pytest.approx(kept_by(workload, recompute), rel=0.03)  # small vectors are not counted


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_adapters_keep_what_is_planned(dropout, recompute, precision, fastest_matmul):
    """They are compared alone, as the difference to a model without them. Frozen weights need less than is planned."""
    case = replace(SMALL, recompute=recompute, precision=precision)
    moe = replace(case.workload.model.moe, shared_experts=1)
    plain = replace(case.workload, model=replace(case.workload.model, activation="swiglu", moe=moe))
    adapters = Adapters(rank=8, targets=("attention", "feed_forward"), dropout=dropout)
    adapted = replace(plain, adapters=adapters)
    wide = matmul_library() == "onednn"
    planned, without = (
        sum(part.kept for part in segments(workload, case.setup, "cpu", float32_attention=wide))
        for workload in (adapted, plain)
    )
    assert planned - without == pytest.approx(kept_by(adapted, recompute) - kept_by(plain, recompute), rel=0.03)
    assert planned > kept_by(replace(adapted, trainable="adapters"), recompute)


@pytest.fixture
def fastest_matmul():
    """Choose the library of matrix products as training does. It decides the precision of attention."""
    from pipeline.jobs.matmul import choose_matmul
    from pipeline.model.fused_attention import SWITCH

    before = SWITCH.fp32_precision
    choose_matmul()
    yield
    SWITCH.fp32_precision = before


OTHER_MOES = {name: moe_of(name, num_experts=8, expert_dim=128) for name in GATES}
OTHER_MOES |= {
    "three experts": replace(OTHER_MOES["dropless"], gate=DroplessConfig(k=3)),
    "einsum": replace(OTHER_MOES["top2"], dispatch="einsum"),
    "shared experts": replace(OTHER_MOES["top2"], shared_experts=3),
    "conditional": replace(OTHER_MOES["top2"], conditional=ConditionalConfig(budget=0.5)),
}


@pytest.mark.parametrize("name", OTHER_MOES)
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_activations_of_other_moe_layers(name, activation):
    """Vectors of a gate that are as long as a group are not counted: up to 6 % in a model as narrow as this one."""
    workload = SMALL.workload
    workload = replace(workload, model=replace(workload.model, moe=OTHER_MOES[name], activation=activation))
    predicted = sum(part.kept for part in segments(workload, SMALL.setup, "cpu", float32_attention=False))
    assert predicted == pytest.approx(kept_by(workload, "none"), rel=0.06)


def test_zero_cuts_masters_and_moments_over_processes_with_copies():
    one, four = (state_of(workload_of(), setup_of(data=n)) for n in (1, 4))
    assert one.weights == one.partition == four.weights
    assert four.partition == pytest.approx(one.partition / 4, abs=16)
    assert one.optimizer == 3 * one.partition
    assert state_of(workload_of(ema=True), setup_of()).optimizer == 4 * one.partition


def test_gradients_and_state_are_of_the_parameters_that_train():
    """Norms have 2 vectors of M=16: 2 in 3 encoder layers, 3 in 2 decoder layers, 1 of each stack."""
    whole = state_of(workload_of(), setup_of())
    norms = state_of(workload_of(trainable=("norms",)), setup_of())
    assert norms.weights == whole.weights == whole.trained
    assert norms.trained == norms.partition == 4 * 2 * 14 * 16
    assert norms.optimizer == 3 * norms.partition
    frozen = {p.phase: p for p in phases(workload_of(trainable=("norms",)), setup_of(), device_of())}
    assert frozen["reduction"].gradients == norms.trained
    assert max(p.gradients for p in frozen.values()) == norms.trained
    assert frozen["forward"].weights == whole.weights


def test_adapters_are_counted_with_the_weights_and_train_alone():
    """Rank 2 of attention: 2 · (M + N · D) numbers for each of 4 projections of 7 attentions."""
    whole = state_of(workload_of(), setup_of())
    adapted = state_of(workload_of(trainable="adapters", adapters=Adapters(rank=2, targets=("attention",))), setup_of())
    assert adapted.trained == 4 * 7 * 4 * 2 * (16 + 16)
    assert adapted.weights == whole.weights + adapted.trained


def test_masters_of_experts_without_copies_are_not_cut():
    """Four processes with two experts each have no copies, so masters and moments are not cut further."""
    cut = state_of(workload_of(), setup_of(expert=4))
    whole = state_of(workload_of(), setup_of())
    experts = 4 * sum(2 * 8 * 16 * 24 for _ in range(2))  # bytes of two MoE layers
    assert whole.weights - cut.weights == experts * 3 / 4
    assert cut.partition == pytest.approx((whole.weights - experts) / 4 + experts / 4, abs=16)


def test_zero_2_keeps_only_its_own_gradients_between_micro_batches():
    kept = {
        stage: next(
            p.gradients
            for p in phases(workload_of(), setup_of(data=4, zero_stage=stage), device_of())
            if p.phase == "forward"
        )
        for stage in (1, 2)
    }
    assert kept[2] == pytest.approx(kept[1] / 4, abs=16)


def test_a_model_cut_in_two_holds_half_of_the_cut_parameters():
    """Norms, routers and the residual stream stay whole."""
    whole, cut = (memory(workload_of(), setup_of("model", model=n), device_of()) for n in (1, 2))
    assert whole.weights / 2 < cut.weights < whole.weights * 0.6
    assert whole.activations / 2 < cut.activations < whole.activations


def test_a_peak_is_the_sum_of_its_parts_and_fits_or_not():
    peak = memory(workload_of(), setup_of(), device_of(memory=1e12))
    assert peak.fits
    assert not memory(workload_of(), setup_of(), device_of(memory=peak.total - 1)).fits
    assert memory(workload_of(), setup_of(), device_of(resident=1e6)).total == pytest.approx(peak.total + 1e6)
