"""The text of plans has the numbers of the plan, in the form that a reader wants."""

from dataclasses import replace

import pytest

from pipeline.config import load_config
from pipeline.plan.devices import load_device
from pipeline.plan.memory import memory
from pipeline.plan.plan import make_plan, workload_of
from pipeline.plan.plot import Bar, plot
from pipeline.plan.search import Candidate
from pipeline.plan.spread import DEFAULT, PRESETS, RECOMPUTE, STAGES, Spread
from pipeline.plan.table import aligned, days, dollars, gib, plan_text, published_text, time, words

A100 = replace(load_device("a100"), memory=40e9)


@pytest.fixture(scope="module")
def candidate():
    workload = workload_of(load_config(["recipes=gshard/moe_128e_36l"]))
    spread = Spread(name=DEFAULT, table=PRESETS[DEFAULT], devices=32, ep=32, mp=1, zero_stage=2, recompute="none")
    return Candidate(workload=workload, spread=spread, plan=make_plan(workload, spread.setup, A100), own_groups=True)


def rows_of(candidate):
    return [line.split() for line in plan_text(candidate).splitlines()]


def test_the_step_is_all_there_and_its_parts_add_up(candidate):
    lines = plan_text(candidate).split("step of ")[-1].splitlines()
    step = candidate.plan.step
    parts = {" ".join(line.split()[:-4]): line.split()[-4:] for line in lines[1 : 1 + len(step.parts)]}
    assert list(parts) == [words(part) for part in step.parts]
    assert sum(float(share) for _, _, share, _ in parts.values()) == pytest.approx(100, abs=0.1 * len(parts))


def test_memory_by_stage_and_recomputation(candidate):
    rows = {row[1]: row[4:] for row in rows_of(candidate) if row[:1] == ["ZeRO"]}
    cells = {
        (stage, recompute): memory(
            candidate.workload, replace(candidate.spread, zero_stage=stage, recompute=recompute).setup, A100
        )
        for stage in STAGES
        for recompute in RECOMPUTE
    }
    assert {cell.fits for cell in cells.values()} == {True, False}
    for stage in STAGES:
        expected = [gib(cells[stage, name].total) + " !" * (not cells[stage, name].fits) for name in RECOMPUTE]
        assert " ".join(rows[str(stage)]).replace(">", "") == " ".join(expected)
    assert rows["2"][0].startswith(">")
    assert not any(">" in text for text in [*rows["1"], *rows["2"][1:]])
    (kept,) = [row[1:] for row in rows_of(candidate) if row[:1] == ["activations"]]
    assert float(kept[0]) >= float(gib(candidate.plan.memory.activations))
    assert float(kept[3]) == min(map(float, kept)) < float(kept[0])


def test_every_collective_has_its_bytes_by_link(candidate):
    (section,) = [part for part in plan_text(candidate).split("\n\n") if part.startswith("collectives of a step")]
    rows = [line.split() for line in section.splitlines()[1:]]
    assert [row[0] for row in rows] == [transfer.collective.part for transfer in candidate.plan.collectives]
    (dispatch,) = [transfer for transfer in candidate.plan.collectives if transfer.collective.part == "dispatch"]
    (row,) = [row for row in rows if row[0] == "dispatch"]
    assert row[3:8] == ["32", *(text for text in cells(dispatch))]


def cells(transfer):
    sizes = (transfer.collective.bytes, transfer.bytes_inside, transfer.bytes_outside)
    return [f"{transfer.collective.count:,}", *map(gib, sizes)]


def test_the_figure_has_a_bar_for_everything(candidate):
    bars = [Bar.of("one", candidate.plan), Bar.of("two", candidate.plan)]
    left, right = plot(bars, "title").axes
    widths = [sum(bars.patches[1].get_width() for bars in axes.containers) for axes in (left, right)]
    assert widths[0] == pytest.approx(candidate.plan.step.seconds)
    assert widths[1] == pytest.approx(candidate.plan.memory.total / 2**30)
    assert right.get_xlim()[1] > candidate.plan.device.memory / 2**30


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (time(1.234), "1.23 s"),
        (time(0.01234), "12.3 ms"),
        (gib(0), "0.0"),
        (gib(2**30 / 100), "0.010"),
        (gib(2**40), "1,024.0"),
        (days(12.345), "12.3"),
        (days(0.0123), "17 min 43 s"),
        (dollars(1234.5), "$1,234"),
        (dollars(0.5), "$0.50"),
        (dollars(0), "–"),
        (words("all_to_all"), "all-to-all"),
        (published_text({"cores": 128.0, "days": 5.4}), "published: 128 devices, 5.4 days"),
        (aligned([("a", "b"), ("long", "1")]), "a     b\nlong  1"),
    ],
)
def test_numbers(cell, text):
    assert cell == text
