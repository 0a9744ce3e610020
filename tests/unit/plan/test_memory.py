"""The planner's memory against what really built models keep; of a whole step: tests/parallel/test_memory.py."""

from dataclasses import fields, replace

import pytest
import torch
from torch import Tensor

from bench.plan.case import Case
from bench.plan.worker import tokens
from pipeline.model.gate_config import DroplessConfig, Top1Config
from pipeline.model.transformer import Transformer
from pipeline.parallel.matmul import matmul_library
from pipeline.plan.activations import segments
from pipeline.plan.memory import memory, phases, state_of
from tests.plans import device_of, setup_of, workload_of

SMALL = Case(dim=32, layers=4, experts=8, rows=4, length=24, vocabulary=100)


def kept_by(workload, recompute):
    """Bytes of all storages that a forward pass saves for backward, but for parameters, positions and the batch."""
    model = Transformer(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
        max_positions=workload.shape.source,
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.1)
    model.recompute(recompute)
    batch = tokens(replace(SMALL, vocabulary=workload.target_vocabulary))
    given = [*model.parameters(), model.positions, *(getattr(batch, field.name) for field in fields(batch))]
    known = {t.untyped_storage().data_ptr() for t in given if isinstance(t, Tensor)}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = (storage.nbytes(), tensor)  # held, so that no other takes its place
        return tensor

    bf16 = torch.autocast("cpu", dtype=torch.bfloat16, enabled=workload.precision == "bf16")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), bf16:
        model(batch, label_smoothing=0.1)
    return sum(size for size, _ in found.values())


@pytest.mark.parametrize("recompute", ["none", "selective", "layers", "all"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_activations_are_what_autograd_keeps(recompute, precision, fastest_matmul):
    case = replace(SMALL, recompute=recompute, precision=precision)
    wide = matmul_library() == "onednn"
    predicted = sum(part.kept for part in segments(case.workload, case.setup, "cpu", float32_attention=wide))
    assert predicted == pytest.approx(kept_by(case.workload, recompute), rel=0.03)  # small vectors are not counted


@pytest.fixture
def fastest_matmul():
    """As training sets it: it decides in what attention computes."""
    from pipeline.model.fused_attention import SWITCH
    from pipeline.parallel.matmul import choose_matmul

    before = SWITCH.fp32_precision
    choose_matmul()
    yield
    SWITCH.fp32_precision = before


@pytest.mark.parametrize("gate", [Top1Config(), DroplessConfig(k=3)])
def test_activations_of_other_gates(gate):
    workload = SMALL.workload
    moe = replace(workload.model.moe, gate=gate)
    workload = replace(workload, model=replace(workload.model, moe=moe))
    predicted = sum(part.kept for part in segments(workload, SMALL.setup, "cpu", float32_attention=False))
    assert predicted == pytest.approx(kept_by(workload, "none"), rel=0.04)


def test_zero_cuts_masters_and_moments_over_those_that_have_copies():
    one, four = (state_of(workload_of(), setup_of(data=n)) for n in (1, 4))
    assert one.held == one.partition == four.held
    assert four.partition == pytest.approx(one.partition / 4, abs=16)
    assert one.optimizer == 3 * one.partition
    assert state_of(workload_of(ema=True), setup_of()).optimizer == 4 * one.partition


def test_experts_are_cut_over_the_processes_that_have_other_ones():
    """Of four processes with two experts each nobody has a copy, so their masters and moments are whole."""
    cut = state_of(workload_of(), setup_of(expert=4))
    whole = state_of(workload_of(), setup_of())
    experts = 4 * sum(2 * 8 * 16 * 24 for _ in range(2))  # bytes of two MoE layers
    assert whole.held - cut.held == experts * 3 / 4
    assert cut.partition == pytest.approx((whole.held - experts) / 4 + experts / 4, abs=16)


def test_zero_2_does_not_keep_gradients_of_others_between_micro_batches():
    kept = {
        stage: next(
            p.gradients
            for p in phases(workload_of(), setup_of(data=4, zero_stage=stage), device_of())
            if p.phase == "forward"
        )
        for stage in (1, 2)
    }
    assert kept[2] == pytest.approx(kept[1] / 4, abs=16)


def test_a_model_cut_in_two_holds_half_of_what_is_cut():
    """Norms, routers and the residual stream stay whole."""
    whole, cut = (memory(workload_of(), setup_of("model", model=n), device_of()) for n in (1, 2))
    assert whole.weights / 2 < cut.weights < whole.weights * 0.6
    assert whole.activations / 2 < cut.activations < whole.activations


def test_a_peak_is_the_sum_of_its_parts_and_fits_or_not():
    found = memory(workload_of(), setup_of(), device_of(memory=1e12))
    assert found.fits
    assert not memory(workload_of(), setup_of(), device_of(memory=found.total - 1)).fits
    assert memory(workload_of(), setup_of(), device_of(resident=1e6)).total == pytest.approx(found.total + 1e6)
