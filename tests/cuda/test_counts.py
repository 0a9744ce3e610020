"""The cost of a micro-batch, in counts that may only fall: `python -m tests.cuda.counts` shows where they arise."""

import json
from pathlib import Path

import pytest

from tests.cuda.guard import obstacle
from tests.cuda.micro_batch import count, table
from tests.cuda.process import impostor_process

CEILINGS = Path(__file__).with_name("ceilings.json")


@pytest.fixture(scope="module")
def counts():
    """Counts of a micro-batch. A process of its own, because code may keep a tensor, which has only a shape here."""
    if reason := obstacle():
        pytest.skip(reason)
    with impostor_process() as run:
        return run(count)


def test_kernels_and_casts_of_a_micro_batch_only_fall(counts, record_property):
    record_property("counts of a micro-batch", "\n".join(table(counts)))
    now = {"kernels": sum(counts.kernels.values()), "casts": sum(counts.casts.values())}
    ceilings = json.loads(CEILINGS.read_text(encoding="utf-8"))
    assert not counts.waits
    for name, ceiling in ceilings.items():
        assert now[name] <= ceiling, f"{name} rose from {ceiling} to {now[name]}: see python -m tests.cuda.counts"
        assert now[name] == ceiling, (
            f"{name} fell from {ceiling} to {now[name]}: well done, write it to {CEILINGS.name}"
        )


def test_gated_networks_and_rms_norm_add_no_casts_and_no_waits(counts):
    """Both projections take one cast input, and the copies of both weights are made once in a step."""
    with impostor_process() as run:
        gated = run(count, "top2", "bf16", "swiglu", "rms")
    assert not gated.waits
    assert sum(gated.casts.values()) == sum(counts.casts.values())
    assert gated.kernels != counts.kernels


def test_the_table_has_every_file_and_their_sum(counts):
    lines = table(counts)
    assert lines[0].split() == ["file", "of", "pipeline/", "kernels", "casts", "GB", "moved"]
    kernels = [int(line.split()[1].replace(",", "")) for line in lines[1:]]
    assert sum(kernels[:-1]) == kernels[-1]
    assert {"model/attention.py", "model/moe/experts.py", "model/loss.py"} < {line.split()[0] for line in lines}
