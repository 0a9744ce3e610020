"""Executed FLOPs are those that torch counts in the real model.

The model is partitioned for a fake world, in which collectives do nothing.
"""

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from pipeline.batch.batch import Batch
from pipeline.batch.config import GroupShape
from pipeline.model.config import ConditionalConfig, MoEConfig
from pipeline.model.flops import forward_flops
from pipeline.model.initialization import initialize
from pipeline.model.moe.gates.config import DroplessConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition
from pipeline.plan.parts import FUSED, TRAINING, micro_batch, optimizer
from pipeline.plan.workload import PARTS, Setup, Workload
from tests.gates import moe_of
from tests.plans import model_of, setup_of, workload_of

FLASH = {  # the CPU's operations that torch's counter does not know
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *_, **__: sdpa_flop_count(
        query, key, value
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, query, key, value, *_, **__: sdpa_backward_flop_count(grad, query, key, value)
    ),
}
GATED = workload_of(model=model_of(activation="swiglu", norm="rms"))
# So many tokens, experts and pieces that the router and the loss work in chunks
LARGE = workload_of(
    model=model_of(MoEConfig(num_experts=1024, expert_dim=2), encoder_layers=2, dim=4, heads=2, ffn_dim=4),
    target_vocabulary=8192,
    shape=GroupShape(rows=11, source=100, target=100),
)


def batch_of(workload: Workload) -> Batch:
    """Return a batch of equal tokens, with one sentence in each row."""
    shape = workload.shape
    source = torch.ones(shape.rows, shape.source, dtype=torch.int64)
    target = torch.ones(shape.rows, shape.target, dtype=torch.int64)
    return Batch(
        **{f"encoder_{name}_BL": source for name in ("tokens", "segments", "positions")},
        **{f"decoder_{name}_BT": target for name in ("input_tokens", "target_tokens", "segments", "positions")},
        pair_BL=torch.zeros_like(source),
        pair_BT=torch.zeros_like(target),
        num_pairs=1,
    )


def counted(workload: Workload, setup: Setup) -> int:
    """Count the FLOPs of one process for one group, forward and backward."""
    model = Transformer(
        workload.model,
        source_vocabulary=workload.source_vocabulary,
        target_vocabulary=workload.target_vocabulary,
        shared=workload.shared,
        max_positions=max(workload.shape.source, workload.shape.target),
    )
    initialize(model, seed=1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=setup.layout.world)
    try:
        partition(model, Mesh.build(setup.layout, torch.device("cpu")))
        model.recompute(setup.recompute)
        with FlopCounterMode(display=False, custom_mapping=FLASH) as counter:
            losses = model(batch_of(workload), label_smoothing=0.1)
            losses.share(target_tokens=1, nonempty_groups=1).backward()
    finally:
        dist.destroy_process_group()
    return int(counter.get_total_flops())


def sums_of_gates(workload: Workload, times: int) -> int:
    """Return the FLOPs of sums of gates over tokens: products in the model, which `parts` leaves out."""
    shape, model = workload.shape, workload.model
    layers = ((shape.source, model.encoder_layers), (shape.target, model.decoder_layers))
    tokens = sum(shape.rows * length * model.num_moe_layers(number) for length, number in layers)
    return times * 2 * tokens * model.moe.num_experts


@pytest.mark.parametrize(
    ("workload", "setup", "times"),
    [
        pytest.param(workload_of(), setup_of(), 2, id="one device"),
        pytest.param(workload_of(), setup_of(recompute="all"), 3, id="all again"),
        pytest.param(workload_of(), setup_of(expert=4, recompute="selective"), 2, id="experts cut, attention again"),
        pytest.param(workload_of(), setup_of("model", data=2, expert=2, model=2, recompute="layers"), 2, id="all cut"),
        pytest.param(workload_of(), setup_of("experts not handed over", expert=2, model=2), 2, id="no hand-over"),
        pytest.param(
            workload_of(model=model_of(moe_of("top2", dispatch="einsum"))), setup_of(recompute="all"), 3, id="einsum"
        ),
        pytest.param(
            workload_of(model=model_of(moe_of("top2", shared_experts=2))),
            setup_of("model", model=2, recompute="all"),
            3,
            id="shared experts cut, all again",
        ),
        pytest.param(
            workload_of(model=model_of(moe_of("top2", shared_experts=2), activation="swiglu")),
            setup_of("model", model=2),
            2,
            id="gated shared experts cut",
        ),
        pytest.param(LARGE, setup_of("model", model=2), 2, id="chunks"),
        pytest.param(LARGE, setup_of("model", model=2, recompute="all"), 3, id="chunks, all again"),
        pytest.param(GATED, setup_of("model", data=2, expert=2, model=2, recompute="layers"), 2, id="gated, all cut"),
    ],
)
def test_flops_are_those_that_torch_counts(workload: Workload, setup: Setup, times: int) -> None:
    flops = sum(work.flops for work in micro_batch(workload, setup))
    assert flops == counted(workload, setup) - sums_of_gates(workload, times)


def flops_by_part(workload: Workload, setup: Setup) -> Counter[str]:
    flops: Counter[str] = Counter()
    for work in micro_batch(workload, setup):
        flops[work.part] += work.flops
    return flops


@pytest.mark.parametrize(("conditional", "shared"), [(None, 0), (ConditionalConfig(), 0), (None, 2)])
def test_without_a_capacity_flops_are_useful_but_for_repeated_scores(
    conditional: ConditionalConfig | None, shared: int
) -> None:
    gate = DroplessConfig()
    moe = MoEConfig(num_experts=8, expert_dim=24, shared_experts=shared, gate=gate, conditional=conditional)
    workload = workload_of(model=model_of(moe))
    flops = flops_by_part(workload, setup_of())
    useful = TRAINING * forward_flops(workload.model, workload.target_vocabulary).of_shape(workload.shape)
    assert flops.total() == useful + flops["attention"] * (1 - TRAINING / FUSED)


def test_replication_is_that_of_the_layout() -> None:
    """All processes together execute the FLOPs of one device, times `Layout.replication`."""
    workload = workload_of(model=model_of(moe_of("dropless")))
    letters = {"projections": "GSND", "attention": "GSND", "dense": "GSH", "experts": "EGCH", "logits": "GSV"}
    alone = flops_by_part(workload, setup_of())
    for setup in (setup_of(data=2, model=2), setup_of("model", model=2), setup_of("experts not handed over", expert=2)):
        flops = flops_by_part(workload, setup)
        for part, loop in {**letters, "gate": "GS"}.items():
            together = flops[part] * setup.layout.world * setup.accumulation(workload)
            assert together == alone[part] * workload.groups_per_step * setup.layout.replication(loop)


def test_more_tokens_layers_or_recomputation_are_more_work() -> None:
    def total(workload: Workload, setup: Setup) -> tuple[float, float]:
        works = micro_batch(workload, setup)
        return sum(work.flops for work in works), sum(work.bytes for work in works)

    least = total(workload_of(), setup_of())
    for workload, setup in (
        (workload_of(shape=GroupShape(rows=3, source=24, target=20)), setup_of()),
        (workload_of(model=model_of(encoder_layers=4)), setup_of()),
        (workload_of(), setup_of(recompute="selective")),
        (GATED, setup_of()),
    ):
        assert all(more > less for more, less in zip(total(workload, setup), least, strict=True))
    assert {work.part for work in micro_batch(workload_of(), setup_of())} == set(PARTS) - {"optimizer"}


def test_bytes_of_an_update_by_hand() -> None:
    """Every access is of four bytes.

    A micro-batch copies every gradient to a bucket and divides it, with 4 accesses. A process's own part takes 7
    accesses for ZeRO's copies, and 7 for AdamW.
    """
    workload = workload_of(model=model_of(MoEConfig()), groups_per_step=1)
    parameters = 16 * (48 + 64) + 5 * 2 * 16 * 32 + 7 * 4 * 16 * 16 + 2 * 16 * (5 + 7 + 2)
    assert optimizer(workload, setup_of()).bytes == 4 * parameters * (4 + 7 + 7)
    two = workload_of(model=model_of(MoEConfig()), groups_per_step=2)
    assert optimizer(two, setup_of(data=2)).bytes == 4 * parameters * (4 + (7 + 7) / 2)
    assert optimizer(two, setup_of()).bytes == 4 * parameters * (3 + 4 + 7 + 7)


def test_experts_on_other_processes_are_not_updated_twice() -> None:
    """ZeRO cuts the update of experts that have copies, and not of those that have none."""
    workload, experts = workload_of(groups_per_step=4), 2 * 8 * 2 * 16 * 24
    spread, copied = (optimizer(workload, setup_of(data=4 // ep, expert=ep)) for ep in (4, 2))
    # A process holds 1/4 or 1/2 of the experts, and updates 1/4 in both cases.
    assert copied.bytes - spread.bytes == 4 * 4 * experts / 4
