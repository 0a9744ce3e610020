"""Which layouts a plan chooses, finds and suggests, against trying all of them."""

from dataclasses import replace
from itertools import product

import pytest

from pipeline.config import load_config
from pipeline.plan.devices import load_device
from pipeline.plan.memory import Memory, memory
from pipeline.plan.plan import make_plan, workload_of
from pipeline.plan.search import misfit, nearest_fit, search
from pipeline.plan.spread import CUT, DEFAULT, PRESETS, RECOMPUTE, STAGES, Spread, check, default_ep, is_legal, nearest

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


def fits(workload, chosen, device=H100):
    return memory(workload, chosen.setup, device).fits


def everything(workload, devices):
    sizes = [each for each in range(1, devices + 1) if devices % each == 0]
    for mp, ep, stage, recompute in product(sizes, sizes, STAGES, RECOMPUTE):
        if devices % (mp * ep) == 0:
            yield spread(devices, ep=ep, mp=mp, zero_stage=stage, recompute=recompute)


def test_a_search_finds_the_best_of_all(small):
    """No layout of 8 devices, of any stage and with any recomputation, is faster and fits."""
    tried = [each for each in everything(small, 8) if is_legal(small, each) and fits(small, each)]
    rates = [make_plan(small, each.setup, H100).step.tokens_per_second for each in tried]
    result = search(small, 8, H100, PRESETS)
    found = [each.plan.step.tokens_per_second for each in result.found]
    assert found[0] == max(rates)
    assert found == sorted(found, reverse=True)
    assert all(each.plan.memory.fits and each.own for each in result.found)
    assert result.legal == len({(each.ep, each.mp, each.zero_stage) for each in everything(small, 8)})
    layouts = [(each.spread.ep, each.spread.mp, each.spread.zero_stage) for each in result.found]
    assert len(set(layouts)) == len(layouts)
    assert set(layouts) == {(each.ep, each.mp, each.zero_stage) for each in tried}


def test_groups_of_other_sizes_keep_the_tokens_of_a_step(small):
    result = search(small, 8, H100, PRESETS)
    sizes = {(each.workload.shape.rows, each.workload.groups_per_step) for each in result.other}
    assert sizes == {(8, 512), (16, 256), (64, 64), (128, 32)}
    assert not any(each.own for each in result.other)


def least(workload, *spreads):
    """Bytes of the smallest of these with any stage and recomputation."""
    return min(needs(workload, replace(each, **how)) for each in spreads for how in HOW)


def needs(workload, chosen):
    return memory(workload, chosen.setup, H100).total


HOW = [{"zero_stage": stage, "recompute": recompute} for stage in STAGES for recompute in RECOMPUTE]


@pytest.mark.parametrize("how", HOW[1:], ids=str)
def test_the_nearest_that_fits_changes_little(small, how):
    """Where no more than this one's bytes are there."""
    asked = spread(32)
    device = replace(H100, memory=needs(small, replace(asked, **how)))
    found = nearest_fit(small, asked, device)
    fitting = [each for each in HOW if fits(small, replace(asked, **each), device)]
    assert HOW[0] not in fitting
    assert replace(found, **HOW[0]) == asked
    chosen = {"zero_stage": found.zero_stage, "recompute": found.recompute}
    assert chosen in fitting
    assert changes(chosen) == min(map(changes, fitting))
    if any(each["zero_stage"] == 1 and changes(each) == changes(chosen) for each in fitting):
        assert found.zero_stage == 1


def changes(how):
    return (how["zero_stage"] != 1) + (how["recompute"] != "none")


def test_a_model_axis_comes_before_more_devices_and_these_last(small):
    cut = [spread(32, mp=mp) for mp in (2, 4, 8, 16)]
    device = replace(H100, memory=least(small, spread(32)) - 1)
    found = nearest_fit(small, spread(32), device)
    assert (found.devices, found.name, found.ep * found.mp) == (32, CUT, 32)
    assert fits(small, found, device)
    tight = replace(H100, memory=least(small, *cut) - 1)
    found = nearest_fit(small, spread(32), tight)
    assert found.devices > 32
    assert fits(small, found, tight)
    assert nearest_fit(small, spread(32), tight, more_devices=False) is None
    assert nearest_fit(small, spread(32), replace(H100, memory=H100.resident)) is None


def test_too_few_parts_of_experts_are_made_more(small):
    asked = spread(32, ep=4)
    device = replace(H100, memory=least(small, asked) - 1)
    found = nearest_fit(small, asked, device)
    assert (found.devices, found.ep, found.mp) == (32, 32, 1)


def test_the_first_thing_that_does_not_fit():
    sizes = {"weights": 10, "gradients": 20, "optimizer": 30, "buffers": 5, "activations": 40}
    found = Memory(phase="backward", resident=1 * 2**30, available=80 * 2**30, **gibs(sizes))
    assert misfit(found) == (
        "activations: 40.0 GiB, but 14.0 of 80.0 GiB are left after resident, weights, gradients, optimizer, buffers"
    )
    assert misfit(replace(found, available=25 * 2**30)).startswith("gradients: 20.0 GiB, but 14.0 of 25.0 GiB are left")
    assert misfit(replace(found, resident=0, available=2**30)) == "weights: 10.0 GiB, but 1.0 of 1.0 GiB are left"
    assert misfit(replace(found, available=106 * 2**30)) == ""


def gibs(sizes):
    return {name: size * 2**30 for name, size in sizes.items()}


@pytest.mark.parametrize(("processes", "ep"), [(64, 64), (128, 128), (512, 128), (96, 32), (5, 1)])
def test_experts_are_cut_over_as_many_as_divide_both(small, processes, ep):
    assert default_ep(small, PRESETS[DEFAULT], processes) == ep
    dense = replace(small, model=replace(small.model, moe=replace(small.model.moe, num_experts=0)))
    assert default_ep(dense, PRESETS[DEFAULT], processes) == 1
    assert default_ep(small, {"G": ("data", "expert")}, processes) == 1


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (spread(100, ep=4), r"devices=100; choose devices=64 or 128$"),
        (spread(512, ep=128), r"devices=512; choose devices=128$"),
        (spread(400, ep=4, mp=4), r"the 100 of devices=400 that share them out; choose devices=256 or 512$"),
        (spread(64, ep=64, mp=3), r"mp=3 does not divide devices=64; choose mp=2 or 4$"),
    ],
)
def test_devices_that_do_not_divide(small, chosen, said):
    with pytest.raises(ValueError, match=said):
        check(small, chosen)


def test_nearest_legal_numbers():
    assert [nearest(each, [1, 2, 4]) for each in (0, 1, 3, 9)] == ["1", "2", "2 or 4", "4"]
