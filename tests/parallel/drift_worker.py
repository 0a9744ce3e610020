"""One process of a model-parallel group whose copies of uncut parameters drift apart, and are repaired.

Run by test_drift.py with RANK and BABELSHARD_RENDEZVOUS. The arguments are the sizes of the axes and the optimizer. The
first process prints what was found.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from pipeline.jobs.rendezvous import join_job
from tests.parallel.layout_runs import Case, engine_of, engine_step, mesh_of

NOISE = 1e-4
DRIFTING = ("encoder.layers.0.", ".router.")  # in the names of uncut parameters


def local_state(engine):
    """Return all state that this process has, whole where no axis cuts it, and its working weights."""
    state = {name: t.to_local() if isinstance(t, DTensor) else t for name, t in engine.tensors()}
    return state | {f"working.{name}": p.detach().clone() for name, p in engine.model.named_parameters()}


def of_first(state, group):
    """Return the state of the first process of a group."""
    state = {name: tensor.clone() for name, tensor in state.items()}
    for tensor in state.values():
        dist.broadcast(tensor, group=group, group_src=0)
    return state


def bytes_sent(call):
    """Return what a call returns, and the bytes that this process gave to its collectives."""
    sent, collectives = [], {name: getattr(dist, name) for name in ("broadcast", "all_reduce")}

    def counting(collective):
        def run(tensor, *args, **settings):
            sent.append(tensor.nbytes)
            return collective(tensor, *args, **settings)

        return run

    for name, collective in collectives.items():
        setattr(dist, name, counting(collective))
    result = call()
    for name, collective in collectives.items():
        setattr(dist, name, collective)
    return result, sum(sent)


def same(one, two):
    assert one.keys() == two.keys()
    return {name for name in one if not torch.equal(one[name], two[name])} == set()


def add_noise(parameters):
    """Let gradients have noise on this process, as sums in another order have. Return the hooks.

    A bias without a gradient gets noise itself, as after choices that other rounding has changed.
    """

    def noisy(gradient):
        return gradient * (1 + NOISE * torch.rand_like(gradient))

    for parameter in parameters:
        if not parameter.requires_grad:
            parameter.data += NOISE
    return [parameter.register_hook(noisy) for parameter in parameters if parameter.requires_grad]


def main(sizes, optimizer):
    mesh = mesh_of("model", sizes)
    gate = "sigmoid" if optimizer == "adamw" else "top2"  # with a bias, which has no gradient
    case = Case(table="model", sizes=sizes, precision="fp32", optimizer=optimizer, zero=2, gate=gate)
    engine, group = engine_of(case, mesh, ema=0.5), mesh.group("model")
    uncut = {name for name, _ in engine.model.named_parameters() if name not in engine._state._cuts}
    assert engine.repair_copies() is None  # before any update
    engine_step(engine, case, 1)
    before = local_state(engine)
    checked = [t.nbytes for n, t in before.items() if n.partition(".")[2] in uncut and not n.startswith("working.")]
    size, checked = sum(checked), len(checked)
    drift, sent = bytes_sent(engine.repair_copies)
    assert drift is None
    assert same(local_state(engine), before)
    assert sent == 12 * checked

    drifting = {n: p for n, p in engine.model.named_parameters() if n in uncut and any(part in n for part in DRIFTING)}
    hooks = add_noise(drifting.values()) if mesh.rank("model") else []
    engine_step(engine, case, 2)
    for hook in hooks:
        hook.remove()
    before = local_state(engine)
    expected = of_first(before, group)
    uncut_state = [n for n in expected if n.partition(".")[2] in uncut and not n.startswith("working.")]
    apart = {name: int((before[name] != expected[name]).sum()) for name in uncut_state}
    drift = engine.repair_copies()
    after = local_state(engine)
    for name, tensor in expected.items():
        if name.partition(".")[2] in uncut:
            assert torch.equal(after[name], tensor), name
        else:
            assert torch.equal(after[name], before[name]), name
    if mesh.rank("model") == 0:
        assert same(after, before)
    assert engine.repair_copies() is None
    assert drift is not None

    last = mesh.size("model") - 1
    if mesh.rank("model") == last and mesh.rank("data") == 0:
        whole = ("_row.", "_col.", ".bias_E")  # in the names of state that every process has whole
        times = {n: mesh.size("data") if any(part in n for part in whole) else 1 for n in apart}
        assert set(drift.names) == {n for n, count in apart.items() if count}
        assert {n.partition(".")[2] for n in drift.names} == set(drifting)
        assert drift.elements == sum(times[n] * count for n, count in apart.items())
        if mesh.size("data") == 1:
            ratios = [(before[n] - expected[n]).abs().max() / expected[n].abs().max() for n in drift.names]
            assert abs(drift.largest - float(max(ratios))) < 1e-6 * drift.largest
        assert 0 < drift.largest < 1
    loss = engine_step(engine, case, 3)
    losses = torch.tensor([loss, loss], dtype=torch.float64)
    dist.broadcast(losses[1:], src=0)
    assert losses[0] == losses[1]
    assert engine.repair_copies() is None
    print(f"{checked} copies, {size:,} bytes, took {sent:,} bytes; {drift}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    join_job(device=torch.device("cpu"), timeout=120)
    main(tuple(map(int, sys.argv[1].split("x"))), sys.argv[2])
    dist.barrier()
    print("done", flush=True)
    os._exit(0)  # like a real job, because gloo's destructors abort if a peer is gone
