"""One of four processes compares the real engine under layouts with plain torch in float64, and passes checkpoints on.

An error names the case and the tensor. Run by test_layouts.py with RANK and BABELSHARD_RENDEZVOUS. The arguments are a
directory that all processes share and, for a long test, the name of a layout (all gates under it on all meshes) or
`chains` (bf16, and checkpoints from layout to layout).
"""

import gc
import os
import sys
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch
import torch.distributed as dist
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from deepspeed.utils import groups as deepspeed_groups
from torch.distributed.tensor import DTensor

from pipeline.engine.checkpoint.logical import load, save
from pipeline.engine.checkpoint.weights import load_weights
from pipeline.jobs.rendezvous import join_job
from pipeline.parallel.partition import expert_parameters, partition
from pipeline.verify.comparison import BOUNDS
from pipeline.verify.config import GATES
from pipeline.verify.routes import Witness
from pipeline.verify.runs import CLIP, whole
from tests.parallel.layout_runs import (
    SIZES,
    TABLES,
    WORLD,
    Case,
    built,
    engine_of,
    engine_step,
    mesh_of,
    plain_steps,
    within,
)

EMA = 0.5
# Adafactor divides each update by its size. So after a few updates the last bit of the float32 masters changes a bias
# that began at zero by 6e-5 of its size (plain torch compared with itself).
AFTER_UPDATES = {"adamw": {}, "adafactor": {"loss": 1e-7, "weight": 1e-4}}

CASES = [
    Case(table="model", sizes=(1, 2, 2), gate="dropless", zero=2, recompute="all"),
    Case(table="model", sizes=(1, 1, 4), gate="hierarchical", shared=True, smoothing=0.0),
    Case(table="groups on data", sizes=(1, 2, 2), gate="dropless", optimizer="adafactor", recompute="layers"),
    Case(table="groups everywhere", sizes=(1, 2, 2), gate="expert_choice", zero=2, recompute="selective"),
    Case(table="model", sizes=(2, 1, 2), gate="sigmoid", recompute="all"),
    Case(table="all apart", sizes=(1, 2, 2), dispatch="einsum", optimizer="adafactor", shared=True),
    Case(table="model", sizes=(1, 2, 2), activation="swiglu", norm="rms", recompute="layers"),
]
CHAINS = {  # table, sizes and ZeRO stage
    "adamw": [("model", (2, 1, 2), 1), ("all apart", (1, 2, 2), 2), ("model", (1, 1, 4), 1)],
    "adafactor": [("turned", (2, 1, 2), 2), ("gshard", (1, 4, 1), 1), ("model", (1, 2, 2), 2)],
}


def every_case():
    """All gates under all layouts and sizes; the rest in turns."""
    turns = cycle(
        dict(zip(("optimizer", "zero", "recompute", "shared", "smoothing"), values, strict=True))
        for values in [
            ("adamw", 1, "none", False, 0.1),
            ("adafactor", 2, "all", True, 0.0),
            ("adamw", 2, "selective", True, 0.1),
            ("adafactor", 1, "layers", False, 0.1),
            ("adafactor", 1, "none", True, 0.1),
        ]
    )
    return [
        Case(table=table, sizes=size, gate=gate, dispatch=dispatch, **next(turns))
        for table in TABLES
        for size in SIZES
        for gate in GATES
        for dispatch in ("gather", "einsum")
        if dispatch == "gather" or gate == "top2"
    ]


def cases_of(choice):
    """Return the cases of a test. choice: name of a layout, `chains`, or empty for the short test."""
    if choice == "chains":
        return [Case(table="model", sizes=size, precision="bf16") for size in SIZES]
    return [case for case in every_case() if case.table == choice] if choice else CASES


def chains_of(choice):
    """Return, by optimizer, the tables, sizes and ZeRO stages that pass a checkpoint on. choice: as of `cases_of`."""
    stages = cycle((1, 2))
    if choice == "chains":
        return {
            optimizer: [(table, size, next(stages)) for table, size in zip(TABLES, cycle(SIZES), strict=False)]
            for optimizer in CHAINS
        }
    return {} if choice else CHAINS


def check(case, steps, judge):
    """Compare a run of the engine with plain torch.

    In bf16, sums in another order would route some tokens elsewhere, so the engine repeats plain torch's routing. Its
    gradients are sums of rounded parts. They may be twice as far from float32's as those of plain torch (1.5 was seen).

    judge: this process compares. All processes have the same whole tensors.
    """
    engine, step_gradients, begin = engine_of(case, mesh_of(case.table, case.sizes)), {}, lambda *_: None
    replayed = case.precision == "bf16"
    plain = plain_steps(case, steps) if judge or replayed else None
    if replayed:
        witness = Witness(engine.model)

        def begin(number, group):
            witness.begin(plain[-1][number, group])

    def look():
        if not step_gradients:
            check_contract(engine)
            step_gradients.update(whole(engine.gradients()))

    losses, norms = [], []
    for number in range(1, steps + 1):
        losses.append(engine_step(engine, case, number, look, begin))
        norms.append(engine.gradient_norm)
    weights = {name.removeprefix("model."): value for name, value in whole(engine.weights()).items()}
    if not judge:
        return
    plain_losses, plain_norms, gradients, plain_weights, _ = plain
    bounds = BOUNDS[case.precision] | (AFTER_UPDATES[case.optimizer] if steps > 1 else {})
    assert plain_norms[0] > CLIP
    within(bounds, "first_loss", losses[0], plain_losses[0], case)
    within(bounds, "first_norm", norms[0], plain_norms[0], case)
    within(bounds, "loss", losses, plain_losses, case)
    within(bounds, "norm", norms, plain_norms, case)
    assert step_gradients.keys() == gradients.keys()
    assert weights.keys() == plain_weights.keys()
    exact = plain_steps(replace(case, precision="fp32"), 1, plain[-1])[2] if replayed else {}
    for name, gradient in gradients.items():
        if replayed:
            distance, plain_distance = ((g.float() - exact[name]).norm() for g in (step_gradients[name], gradient))
            assert distance <= 2 * plain_distance, (
                f"{case} {name}: {distance:.1e} from float32, plain torch {plain_distance:.1e}"
            )
            continue
        within(bounds, "first_gradient", step_gradients[name], gradient, f"{case} {name}")
    for name, weight in plain_weights.items():
        if not replayed:
            within(bounds, "weight", weights[name], weight, f"{case} {name}")


def check_contract(engine):
    """Check what we assume of DeepSpeed between backward and step: its groups, and the places of gradients.

    Also check that our own gradient norm is needed, because DeepSpeed's is wrong for parameters that are cut.
    """
    mesh, zero = engine.mesh, engine.zero
    name, layout = mesh.expert_group_name, mesh.layout
    assert engine.engine.dp_world_size == mesh.batch_size
    assert engine.engine.mp_world_size == WORLD // mesh.batch_size
    assert deepspeed_groups._get_expert_parallel_group(name) is mesh.group(*mesh.expert_axis)
    assert deepspeed_groups._get_expert_data_parallel_group(name) is mesh.group(*layout.expert_copies)
    experts, dense = mesh.group(*layout.expert_copies), mesh.group(*layout.batch_axes)
    assert [group is dense for group in zero.real_dp_process_group[:2]] == [True, True]
    assert all(group is experts for group in zero.real_dp_process_group[2:])
    assert zero.model_parallel_group is mesh.group(*layout.copy_axes)
    for index, parameters in enumerate(zero.params_in_partition):
        gradients = [g for g in zero.averaged_gradients[index] if not getattr(g, "_zero_padding", False)]
        assert len(gradients) >= len(parameters)
        for gradient, parameter in zip(gradients, parameters, strict=False):
            part = parameter._hp_mapping.get_lp_grad_fragment(parameter._index_in_param_group)
            assert torch.equal(gradient.flatten(), part.flatten())
            assert gradient.numel() == parameter._hp_mapping.lp_fragment_address.numel
        assert not any(g.any() for g in gradients[len(parameters) :])
    deepspeed_norm, norm = float(DeepSpeedZeroOptimizer.scaled_global_norm(zero)), float(zero.scaled_global_norm())
    cut = any(layout.axis(letter) in layout.copy_axes for letter in "EHNV")
    assert (abs(deepspeed_norm - norm) > 1e-4 * norm) == cut, (
        f"DeepSpeed's norm is {deepspeed_norm}, ours {norm}: {layout}"
    )


def check_chain(optimizer, stops, directory, judge):
    """Run one step under each layout, from the checkpoint of the previous one.

    Every tensor must be equal bit by bit, and losses must be those of an uninterrupted run by plain torch. With adamw
    the gates have a bias, which is state without a gradient.
    """
    losses, before, counters = [], {}, {}
    case = Case(table="", sizes=(1, 1, 1), optimizer=optimizer, gate="sigmoid" if optimizer == "adamw" else "top2")
    for number, (table, sizes, zero) in enumerate(stops, start=1):
        mesh, path = mesh_of(table, sizes), directory / f"{optimizer}-{number}"
        engine = engine_of(replace(case, zero=zero), mesh, EMA)
        if before:
            engine.resume(counters)
            tensors = engine.state()
            load(path.with_name(f"{optimizer}-{number - 1}"), tensors)
            engine.load(tensors)
            loaded = whole(engine.state())
            assert loaded.keys() == before.keys()
            for name, tensor in before.items():
                assert torch.equal(loaded[name], tensor), f"{optimizer} to {table} {sizes}: {name}"
        losses.append(engine_step(engine, case, number))
        tensors, counters = engine.state(), engine.counters()
        before = {name: tensor.clone() for name, tensor in whole(tensors).items()}
        save(path, tensors, {"ema": EMA})
        with engine.averaged():
            for name, parameter in engine.model.named_parameters():
                average = tensors[f"ema.{name}"]
                average = average.to_local() if isinstance(average, DTensor) else average
                assert torch.equal(parameter, average.double()), name
    assert {name.partition(".")[0] for name in before} == {
        "adamw": {"model", "exp_avg", "exp_avg_sq", "ema"},
        "adafactor": {"model", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq", "ema"},
    }[optimizer]
    check_decoding(case, directory / f"{optimizer}-1", directory / f"{optimizer}-{len(stops)}", before)
    if judge:
        plain_losses, _, _, weights, _ = plain_steps(case, len(stops))
        bounds = BOUNDS["float64"] | AFTER_UPDATES[optimizer]
        for loss, plain_loss in zip(losses, plain_losses, strict=True):
            within(bounds, "loss", loss, plain_loss, f"{optimizer} chain: {losses} {plain_losses}")
        for name, weight in weights.items():
            within(bounds, "weight", before[f"model.{name}"], weight, f"{optimizer} chain: {name}")


def check_decoding(case, first, last, tensors):
    """Check that a model for decoding loads averages, whole or with cut experts, and the mean of two checkpoints."""
    single, mesh = built(replace(case, precision="fp32")), mesh_of("gshard", (1, 4, 1))
    load_weights([last], single)
    for name, parameter in single.named_parameters():
        assert torch.equal(parameter, tensors[f"ema.{name}"]), name
    cut = built(replace(case, precision="fp32"))
    partition(cut, mesh)
    load_weights([last], cut, mesh)
    for name, parameter in cut.named_parameters():
        expected = tensors[f"ema.{name}"]
        part = expected.chunk(WORLD)[dist.get_rank()] if name in expert_parameters(cut) else expected
        assert torch.equal(parameter, part), name
    load_weights([first, last], single)
    assert not torch.equal(single.target_embedding_VM, tensors["ema.target_embedding_VM"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    join_job(device=torch.device("cpu"), timeout=120)
    directory, choice = Path(sys.argv[1]), "".join(sys.argv[2:])
    for index, case in enumerate(cases_of(choice)):
        check(case, steps=2 if choice else 1, judge=index % WORLD == rank)
        gc.collect()  # engines have reference cycles
        print(case, flush=True)
    for index, (optimizer, stops) in enumerate(chains_of(choice).items()):
        check_chain(optimizer, stops, directory, judge=index == rank)
        print(optimizer, flush=True)
    dist.barrier()
    print("done", flush=True)
    os._exit(0)  # like a real job, because gloo's destructors abort if a peer is gone
