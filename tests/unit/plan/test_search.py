"""The layouts that a plan chooses, finds and suggests, against trying all of them."""

from dataclasses import replace
from itertools import product

import pytest

from pipeline.config import load_config
from pipeline.plan.devices import load_device
from pipeline.plan.memory import Memory, memory
from pipeline.plan.plan import make_plan, workload_of
from pipeline.plan.search import misfit, nearest_fit, search
from pipeline.plan.spread import CUT, DEFAULT, PRESETS, RECOMPUTE, STAGES, Spread, check, default_ep, is_legal, nearest
from pipeline.plan.workload import Adapters

H100 = load_device("h100")


@pytest.fixture(scope="module")
def small():
    """GShard's 128 experts in 12 layers: 128 groups, 16 heads."""
    return workload_of(load_config(["recipes=gshard/moe_128e_12l"]))


def spread(devices, *, ep=None, mp=1, zero_stage=1, recompute="none", name=None):
    name = name or (DEFAULT if mp == 1 else CUT)
    ep = ep or devices // mp
    return Spread(
        name=name, table=PRESETS[name], devices=devices, ep=ep, mp=mp, zero_stage=zero_stage, recompute=recompute
    )


def fits(workload, candidate, device=H100):
    return memory(workload, candidate.setup, device).fits


def everything(workload, devices):
    sizes = [size for size in range(1, devices + 1) if devices % size == 0]
    for mp, ep, stage, recompute in product(sizes, sizes, STAGES, RECOMPUTE):
        if devices % (mp * ep) == 0:
            yield spread(devices, ep=ep, mp=mp, zero_stage=stage, recompute=recompute)


def cut_of(candidate):
    return candidate.ep, candidate.mp, candidate.zero_stage


def test_a_search_finds_the_best_of_all(small):
    """No layout of 8 devices, of any stage and with any recomputation, is faster and fits."""
    fitting = [candidate for candidate in everything(small, 8) if is_legal(small, candidate) and fits(small, candidate)]
    best = max(make_plan(small, candidate.setup, H100).step.tokens_per_second for candidate in fitting)
    result = search(small, 8, H100, PRESETS)
    rates = [candidate.plan.step.tokens_per_second for candidate in result.fitting]
    assert rates[0] == best
    assert rates == sorted(rates, reverse=True)
    assert all(candidate.plan.memory.fits and candidate.own_groups for candidate in result.fitting)
    assert result.num_legal == len({cut_of(candidate) for candidate in everything(small, 8)})
    layouts = [cut_of(candidate.spread) for candidate in result.fitting]
    assert len(set(layouts)) == len(layouts)
    assert set(layouts) == {cut_of(candidate) for candidate in fitting}


def test_groups_of_other_sizes_keep_the_tokens_of_a_step(small):
    result = search(small, 8, H100, PRESETS)
    workloads = [candidate.workload for candidate in result.other_sizes]
    sizes = {(workload.shape.rows, workload.groups_per_step) for workload in workloads}
    assert sizes == {(8, 512), (16, 256), (64, 64), (128, 32)}
    assert not any(candidate.own_groups for candidate in result.other_sizes)


def test_projections_are_not_cut_where_training_refuses_it(small):
    """Biases and dropped inputs of adapters stay whole. Adapters without dropout may be cut."""
    dropping = Adapters(rank=8, targets=("attention",), dropout=0.1)
    biased = replace(small, model=replace(small.model, biases=True))
    tables = {**PRESETS, "vocabulary": {**PRESETS[DEFAULT], "V": ("model",)}}
    for workload in (biased, replace(small, adapters=dropping)):
        result = search(workload, 8, H100, tables)
        assert {candidate.spread.name for candidate in result.fitting if candidate.spread.mp > 1} == {"vocabulary"}
        tight = replace(H100, memory=least(workload, spread(32)) - 1)
        fit = nearest_fit(workload, spread(32), tight)
        assert (fit.mp, fit.devices > 32) == (1, True)
    undropped = search(replace(small, adapters=replace(dropping, dropout=0.0)), 8, H100, PRESETS)
    assert any(candidate.spread.mp > 1 for candidate in undropped.fitting)


def least(workload, *spreads):
    """Return the bytes of the smallest of these spreads, with any stage and recomputation."""
    return min(needs(workload, replace(candidate, **savings)) for candidate in spreads for savings in SAVINGS)


def needs(workload, candidate):
    return memory(workload, candidate.setup, H100).total


SAVINGS = [{"zero_stage": stage, "recompute": recompute} for stage in STAGES for recompute in RECOMPUTE]


@pytest.mark.parametrize("savings", SAVINGS[1:], ids=str)
def test_the_nearest_that_fits_changes_little(small, savings):
    """The device has exactly the memory that these savings need."""
    start = spread(32)
    device = replace(H100, memory=needs(small, replace(start, **savings)))
    nearest_spread = nearest_fit(small, start, device)
    fitting = [candidate for candidate in SAVINGS if fits(small, replace(start, **candidate), device)]
    assert SAVINGS[0] not in fitting
    assert replace(nearest_spread, **SAVINGS[0]) == start
    choice = {"zero_stage": nearest_spread.zero_stage, "recompute": nearest_spread.recompute}
    assert choice in fitting
    assert num_changes(choice) == min(map(num_changes, fitting))
    if any(other["zero_stage"] == 1 and num_changes(other) == num_changes(choice) for other in fitting):
        assert nearest_spread.zero_stage == 1


def num_changes(savings):
    return (savings["zero_stage"] != 1) + (savings["recompute"] != "none")


def test_a_model_axis_comes_before_more_devices_and_these_last(small):
    cut = [spread(32, mp=mp) for mp in (2, 4, 8, 16)]
    device = replace(H100, memory=least(small, spread(32)) - 1)
    fit = nearest_fit(small, spread(32), device)
    assert (fit.devices, fit.name, fit.ep * fit.mp) == (32, CUT, 32)
    assert fits(small, fit, device)
    tight = replace(H100, memory=least(small, *cut) - 1)
    fit = nearest_fit(small, spread(32), tight)
    assert fit.devices > 32
    assert fits(small, fit, tight)
    assert nearest_fit(small, spread(32), tight, more_devices=False) is None
    assert nearest_fit(small, spread(32), replace(H100, memory=H100.resident)) is None


def test_too_few_parts_of_experts_become_more(small):
    start = spread(32, ep=4)
    device = replace(H100, memory=least(small, start) - 1)
    fit = nearest_fit(small, start, device)
    assert (fit.devices, fit.ep, fit.mp) == (32, 32, 1)


def test_the_first_part_that_does_not_fit():
    sizes = {"weights": 10, "gradients": 20, "optimizer": 30, "buffers": 5, "activations": 40}
    needed = Memory(phase="backward", resident=1 * 2**30, available=80 * 2**30, **gibs(sizes))
    assert misfit(needed) == (
        "activations: 40.0 GiB, but 14.0 of 80.0 GiB are left after resident, weights, gradients, optimizer, buffers"
    )
    less = replace(needed, available=25 * 2**30)
    assert misfit(less).startswith("gradients: 20.0 GiB, but 14.0 of 25.0 GiB are left")
    assert misfit(replace(needed, resident=0, available=2**30)) == "weights: 10.0 GiB, but 1.0 of 1.0 GiB are left"
    assert misfit(replace(needed, available=106 * 2**30)) == ""


def gibs(sizes):
    return {name: size * 2**30 for name, size in sizes.items()}


@pytest.mark.parametrize(("processes", "ep"), [(64, 64), (128, 128), (512, 128), (96, 32), (5, 1)])
def test_experts_are_cut_over_as_many_as_divide_both(small, processes, ep):
    assert default_ep(small, PRESETS[DEFAULT], processes) == ep
    dense = replace(small, model=replace(small.model, moe=replace(small.model.moe, num_experts=0)))
    assert default_ep(dense, PRESETS[DEFAULT], processes) == 1
    assert default_ep(small, {"G": ("data", "expert")}, processes) == 1


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (spread(100, ep=4), r"devices=100; choose devices=64 or 128$"),
        (spread(512, ep=128), r"devices=512; choose devices=128$"),
        (spread(400, ep=4, mp=4), r"the 100 of devices=400 that share them out; choose devices=256 or 512$"),
        (spread(64, ep=64, mp=3), r"mp=3 does not divide devices=64; choose mp=2 or 4$"),
    ],
)
def test_devices_that_do_not_divide(small, candidate, message):
    with pytest.raises(ValueError, match=message):
        check(small, candidate)


def test_nearest_legal_numbers():
    assert [nearest(number, [1, 2, 4]) for number in (0, 1, 3, 9)] == ["1", "2", "2 or 4", "4"]
