"""Steps of the real engine, DeepSpeed's, with checkpoints, on the impostor or on the CPU of a process."""

import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.batch.assembly import assemble
from pipeline.engine.checkpoint.logical import load, save
from pipeline.engine.checkpoint.weights import load_weights, read_state
from pipeline.engine.optimizer import OptimizerSettings
from pipeline.model.noise import seed_group
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from tests.cuda.counting import Counts
from tests.cuda.impostor import CUDA, Impostor, on_cpu
from tests.cuda.training import DATA, GROUP, SHAPE, TARGET_TOKENS, built, config_of

ALONE = Layout(table={"G": ("data", "expert"), "E": ("expert",)}, sizes={"data": 1, "expert": 1, "model": 1})
GROUPS, EMA = 2, 0.5


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Results of three steps, the last of them once more from a checkpoint. Tensors are numpy arrays.

    state: weights, moments and the moving average after two steps.
    third, third_resumed: loss and state of the third step, without a break and from the checkpoint.
    decoding: weights that decoding reads from the checkpoint.
    waits: of forward, backward and accumulation, and of updates.
    refused: operations without a deterministic kernel on CUDA.
    """

    losses: list[float]
    norms: list[float]
    state: dict
    third: tuple
    third_resumed: tuple
    decoding: dict
    waits: list[set]
    refused: set


def train(device, directory, *, gate="top2", optimizer="adamw", precision="fp32", zero_stage=1):
    """Train in this process, which must be one of the impostor for a device of `cuda`."""
    if not dist.is_initialized():
        os.environ["LOCAL_RANK"] = "0"  # DeepSpeed asks for it
        dist.init_process_group("gloo", init_method=f"file://{directory}/store-{device}", rank=0, world_size=1)
    impostor = Impostor() if device == "cuda" else nullcontext()
    with impostor:
        counts = impostor.counts if device == "cuda" else Counts()
        settings = {"optimizer": optimizer, "precision": precision, "zero_stage": zero_stage}
        engine = engine_of(device, gate, settings)
        waits = [set(), set()]
        losses, norms = [], []
        for number in (1, 2):
            losses.append(step(engine, number, counts, waits))
            norms.append(engine.gradient_norm)
        state = plain(engine.state())
        path = Path(directory) / f"{device}-{gate}-{optimizer}-{precision}-{zero_stage}"
        save(path, engine.state(), {"engine": engine.counters(), "ema": EMA})
        third = step(engine, 3, counts, waits), plain(engine.state())
        resumed = engine_of(device, gate, settings)
        resumed.resume(read_state(path)["engine"])
        tensors = resumed.state()
        load(path, tensors)
        resumed.load(tensors)
        third_resumed = step(resumed, 3, counts, waits), plain(resumed.state())
        model = on_device(built(config_of(gate)), device)
        load_weights([path], model)
        decoding = plain(dict(model.named_parameters()))
    return Trained(
        losses=losses,
        norms=norms,
        state=state,
        third=third,
        third_resumed=third_resumed,
        decoding=decoding,
        waits=waits,
        refused=counts.refused,
    )


def engine_of(device, gate, settings):
    from pipeline.engine.deepspeed import Engine

    engine = Engine(
        on_device(built(config_of(gate)), device),
        Mesh.build(ALONE, CUDA if device == "cuda" else torch.device("cpu")),
        accumulation=GROUPS,
        zero_stage=settings["zero_stage"],
        clip=1.0,
        optimizer=OptimizerSettings(kind=settings["optimizer"], weight_decay=0.01),
        precision=settings["precision"],
        ema=EMA,
    )
    engine.train()
    return engine


def on_device(model, device):
    return Impostor.current().model(model) if device == "cuda" else model


def step(engine, number, counts, waits):
    """Run one optimizer step and return its loss. waits: gets where the host waited, see `Trained`."""
    total = 0.0
    for group in range(GROUPS):
        batch = assemble(GROUP, SHAPE, DATA).to(engine.mesh.device)
        seed_group(1, number, group)
        counts.waits.clear()
        share = engine(batch, label_smoothing=0.1).share(target_tokens=GROUPS * TARGET_TOKENS, nonempty_groups=GROUPS)
        engine.backward(share)
        last = group == GROUPS - 1
        if not last:
            engine.step(1e-3)
        waits[0] |= set(counts.waits)
        counts.waits.clear()
        if last:
            engine.step(1e-3)
        waits[1] |= set(counts.waits)
        total += float(share.detach())
    return total


def plain(tensors):
    return {name: on_cpu(tensor.detach()).clone().numpy() for name, tensor in tensors.items()}
