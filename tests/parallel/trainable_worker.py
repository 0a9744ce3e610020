"""One of two processes trains parts of a model, adapters or a model with biases, by the real engine under layouts.

Some cases have a rate for each component. The reference is plain torch in float64. For adapters without dropout it has
none, but weights W + scale · A · B. Run by test_trainable.py. The argument is a directory that all processes share.
"""

import gc
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.func import functional_call

from pipeline.engine.checkpoint.logical import load, save
from pipeline.engine.checkpoint.weights import load_weights
from pipeline.engine.optimizer import set_learning_rate
from pipeline.jobs.rendezvous import join_job
from pipeline.model.components import ADAPTERS, is_trainable
from pipeline.model.lora import LoraConfig, weight_of
from pipeline.verify.comparison import BOUNDS
from pipeline.verify.runs import CLIP, learning_rate_at, plain_optimizer, whole
from tests.parallel.layout_runs import (
    GROUPS,
    Case,
    built,
    engine_of,
    engine_step,
    mesh_of,
    plain_steps,
    share_of,
    within,
)

EMA, STEPS = 0.5, 3
LORA = LoraConfig(rank=3, alpha=5.0)
FACTORS = {"experts": 0.5, "encoder": 2.0, "norms": 0.5}
DROPPING = LoraConfig(rank=2, dropout=0.25, targets=["attention"])
CASES = [
    Case(table="gshard", sizes=(1, 2, 1), trainable=("attention", "routers"), optimizer="adafactor", zero=2),
    Case(table="gshard", sizes=(1, 2, 1), trainable=("norms", "routers"), gate="sigmoid"),
    Case(table="gshard", sizes=(1, 2, 1), trainable=("attention",), gate="sigmoid"),
    Case(table="gshard", sizes=(1, 2, 1), trainable=("experts", "norms"), shared=True),
    Case(table="model", sizes=(1, 1, 2), trainable=("embeddings", "encoder"), zero=2, recompute="all"),
    Case(table="model", sizes=(1, 1, 2), trainable=ADAPTERS, lora=LORA, activation="swiglu"),
    Case(table="model", sizes=(1, 1, 2), trainable=ADAPTERS, lora=LORA, optimizer="adafactor", zero=2),
    Case(table="gshard", sizes=(1, 2, 1), trainable=ADAPTERS, lora=LORA, gate="dropless"),
    Case(table="gshard", sizes=(2, 1, 1), trainable=ADAPTERS, lora=DROPPING, recompute="all"),
    Case(table="gshard", sizes=(1, 2, 1), trainable=("experts",), biases=True, zero=2),
    Case(table="gshard", sizes=(1, 2, 1), trainable=("encoder",)),
    Case(table="gshard", sizes=(1, 2, 1), rate_factors=FACTORS, zero=2),
    Case(table="gshard", sizes=(1, 2, 1), rate_factors=FACTORS, optimizer="adafactor"),
    Case(table="gshard", sizes=(1, 2, 1), biases=True, optimizer="adafactor", gate="dropless"),
    Case(table="groups on data", sizes=(1, 2, 1), biases=True, recompute="layers"),
]
# As in layouts_worker.py: Adafactor enlarges the last bit of float32 masters.
AFTER_UPDATES = {"adamw": {}, "adafactor": {"loss": 1e-6, "weight": 1e-4}}


def merged_steps(case, steps):
    """Train the adapters of a model without any: return losses, and A and B by name."""
    model = built(replace(case, lora=None, trainable=()))
    weights = dict(model.named_parameters())
    matrices = {n: p.detach().float() for n, p in built(case).named_parameters() if is_trainable(n, ADAPTERS)}
    masters = {name: nn.Parameter(matrix) for name, matrix in matrices.items()}
    optimizer, losses = plain_optimizer(masters, set(), case.settings), []
    pairs = list(zip(list(masters)[::2], list(masters)[1::2], strict=True))
    for number in range(1, steps + 1):
        total, leaves = 0.0, {name: master.detach().double().requires_grad_() for name, master in masters.items()}
        for group in range(GROUPS):
            changed = {}
            for a, b in pairs:
                weight = weights[weight_of(a)]
                inputs = leaves[a].numel() // case.lora.rank
                product = leaves[a].reshape(inputs, -1) @ leaves[b].reshape(case.lora.rank, -1)
                changed[weight_of(a)] = weight + case.lora.alpha / case.lora.rank * product.reshape(weight.shape)

            def forward(batch, changed=changed, **options):
                return functional_call(model, changed, (batch,), options)

            share = share_of(forward, case, number, group)
            share.backward()
            total += float(share.detach())
        norm = torch.stack([leaf.grad.norm() for leaf in leaves.values()]).norm().float()
        for name, master in masters.items():
            master.grad = leaves[name].grad.float() / ((norm + 1e-6) / CLIP).clamp(min=1.0)
        set_learning_rate(optimizer.param_groups, learning_rate_at(number))
        optimizer.step()
        losses.append(total)
    return losses, {name: master.detach() for name, master in masters.items()}


def check(case, directory, judge):
    """Compare a run with the reference, a resumed run with it bit for bit, and frozen weights with the initial ones."""
    mesh = mesh_of(case.table, case.sizes)
    engine, losses = engine_of(case, mesh, EMA), []
    for number in range(1, STEPS + 1):
        losses.append(engine_step(engine, case, number))
        if number == 1:
            first, counters = {name: tensor.clone() for name, tensor in engine.state().items()}, engine.counters()
    state = {"ema": EMA, **({"lora": asdict(case.lora)} if case.lora else {})}
    save(directory / "first", first, state)
    save(directory / "last", engine.state(), state)
    last = {name: tensor.clone() for name, tensor in whole(engine.state()).items()}
    resumed = engine_of(case, mesh, EMA)
    resumed.resume(counters)
    tensors = resumed.state()
    load(directory / "first", tensors)
    resumed.load(tensors)
    for number in range(2, STEPS + 1):
        engine_step(resumed, case, number)
    continued = whole(resumed.state())
    assert continued.keys() == last.keys()
    for name, tensor in last.items():
        assert torch.equal(continued[name], tensor), f"{case}: {name} differs after it was resumed"
    initial = {name: parameter.detach().float() for name, parameter in built(case).named_parameters()}
    for name, before in initial.items():
        trains = is_trainable(name, case.trainable)
        has_gradient = not name.endswith(".bk_X")  # one number more for all keys of a query changes no weight of them
        if has_gradient or not trains:
            assert torch.equal(last[f"model.{name}"], before) != trains, f"{case}: {name}"
        kinds = {entry.partition(".")[0] for entry in last if entry.partition(".")[2] == name}
        has_moments = trains and not name.endswith(".bias_E")
        assert (kinds == {"model", "ema"}) != has_moments, f"{case}: {name} has {kinds}"
        if not trains:
            assert torch.equal(last[f"ema.{name}"], before), f"{case}: {name}"
            parameter = dict(engine.model.named_parameters())[name]
            assert parameter.grad is None
    check_decoding(case, directory / "last", last)
    if judge:
        if case.lora is not None and not case.lora.dropout:
            plain_losses, weights = merged_steps(case, STEPS)
        else:
            plain_losses, _, _, weights, _ = plain_steps(case, STEPS)
        bounds = BOUNDS["float64"] | AFTER_UPDATES[case.optimizer]
        within(bounds, "loss", losses, plain_losses, case)
        assert {name for name in initial if is_trainable(name, case.trainable)} <= weights.keys()
        for name, weight in weights.items():
            within(bounds, "weight", last[f"model.{name}"], weight, f"{case} {name}")


def check_decoding(case, directory, tensors):
    """Check that a model without adapters loads the average with the adapters merged, rounded once."""
    model = built(replace(case, precision="fp32", lora=None))
    load_weights([directory], model)
    expected = {name: tensors[f"ema.{name}"] for name, _ in model.named_parameters()}
    matrices = {name.removeprefix("ema."): t.double() for name, t in tensors.items() if name.startswith("ema.")}
    for a in [name for name in matrices if ".adapters." in name and name.rpartition(".")[2].startswith("a_")]:
        (b,) = (name for name in matrices if name.startswith(f"{a.rpartition('.')[0]}.b_"))
        weight = expected[weight_of(a)]
        difference = matrices[a].flatten(0, -2) @ matrices[b].flatten(1) * case.lora.alpha / case.lora.rank
        expected[weight_of(a)] = (weight.double() + difference.view(weight.shape)).float()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-6, atol=1e-7, msg=f"{case}: {name}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    join_job(device=torch.device("cpu"), timeout=300)
    for index, case in enumerate(CASES):
        check(case, Path(sys.argv[1]) / str(index), judge=index % 2 == rank)
        gc.collect()
        print(case, flush=True)
    dist.barrier()
    print("done", flush=True)
    os._exit(0)
