"""Runs under layouts with four processes, by the engine on a mesh or by plain torch in one process."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist
from torch import nn

from pipeline.engine.deepspeed import Engine
from pipeline.engine.optimizer import set_learning_rate
from pipeline.model.adapters import add_adapters
from pipeline.model.components import ALL, is_trainable
from pipeline.model.config import Activation, NormKind
from pipeline.model.initialization import initialize
from pipeline.model.lora import LoraConfig
from pipeline.model.noise import generator, seed_group
from pipeline.model.transformer import Transformer
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters, partition
from pipeline.verify.batches import SHAPE, VOCABULARY, synthetic_step
from pipeline.verify.config import model_of
from pipeline.verify.routes import Witness
from pipeline.verify.runs import CLIP, SETTINGS, balance_by_bias, learning_rate_at, plain_optimizer, usage_of

WORLD, GROUPS = 4, 4
DATA, EXPERT, MODEL = ("data",), ("expert",), ("model",)
MESH_TENSORFLOW = {"H": MODEL, "N": MODEL, "V": MODEL}
TABLES = {
    "gshard": {"G": DATA + EXPERT, "E": EXPERT},
    "model": {"G": DATA + EXPERT, "E": EXPERT, **MESH_TENSORFLOW},
    "experts on model": {"G": DATA + EXPERT, "E": MODEL, "N": MODEL, "V": MODEL},
    "groups on data": {"G": DATA, "E": EXPERT, **MESH_TENSORFLOW},
    "groups everywhere": {"G": DATA + EXPERT + MODEL, "E": MODEL},
    "all apart": {"G": DATA, "E": MODEL, "H": EXPERT, "N": MODEL, "V": EXPERT},
    "turned": {"G": EXPERT, "E": MODEL, "H": DATA, "N": MODEL, "V": DATA},
}
SIZES = [(1, 2, 2), (2, 1, 2), (1, 1, 4)]  # of data, expert and model


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run. sizes: of the axes data, expert and model."""

    table: str
    sizes: tuple[int, int, int]
    gate: str = "top2"
    activation: Activation = "relu"
    norm: NormKind = "layer"
    optimizer: str = "adamw"
    zero: int = 1
    precision: str = "float64"
    recompute: str = "none"
    dispatch: str = "gather"
    shared: bool = False
    smoothing: float = 0.1
    trainable: str | tuple[str, ...] = ALL
    lora: LoraConfig | None = None
    biases: bool = False
    rate_factors: Mapping[str, float] = field(default_factory=lambda: SETTINGS.rate_factors)

    @property
    def settings(self):
        return replace(SETTINGS, kind=self.optimizer, rate_factors=self.rate_factors)


BIASES = ("b", "bq", "bk", "bv", "bi", "bo")  # of projections, and B of adapters: what begins at zero


def mesh_of(table, sizes):
    layout = Layout(table=TABLES[table], sizes=dict(zip(("data", "expert", "model"), sizes, strict=True)))
    return Mesh.build(layout, torch.device("cpu"))


def built(case):
    config = model_of(case.gate, activation=case.activation, norm=case.norm)
    config = replace(config, biases=case.biases, moe=replace(config.moe, dispatch=case.dispatch))
    model = Transformer(
        config,
        source_vocabulary=VOCABULARY,
        target_vocabulary=VOCABULARY,
        shared=case.shared,
        max_positions=max(SHAPE.source, SHAPE.target),
    )
    if case.lora is not None:
        add_adapters(model, case.lora)
    initialize(model, 1)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and is_trainable(name, case.trainable))
        if name.rpartition(".")[2].partition("_")[0] in BIASES:  # at zero, A would have no gradient
            torch.nn.init.uniform_(parameter, -0.1, 0.1, generator=generator(1, name))
    return model.double() if case.precision == "float64" else model


def engine_of(case, mesh, ema=0.0):
    model = built(case)
    partition(model, mesh)
    model.recompute(case.recompute)
    engine = Engine(
        model,
        mesh,
        accumulation=GROUPS // mesh.batch_size,
        zero_stage=case.zero,
        clip=CLIP,
        optimizer=case.settings,
        precision=case.precision,
        ema=ema,
    )
    engine.train()
    return engine


def share_of(forward, case, number, group):
    step = synthetic_step(number, GROUPS)
    seed_group(1, number, group)
    losses = forward(step.groups[group], label_smoothing=case.smoothing)
    return losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups)


def engine_step(engine, case, number, look=lambda: None, begin=lambda number, group: None):
    """Run a step and return its loss.

    look: called between the last backward pass and the update.
    begin: called before each group.
    """
    mesh, total = engine.mesh, torch.zeros((), dtype=torch.float64)
    for group in range(mesh.batch_rank, GROUPS, mesh.batch_size):
        begin(number, group)
        share = share_of(engine, case, number, group)
        engine.backward(share)
        if group + mesh.batch_size >= GROUPS:
            look()
        engine.step(learning_rate_at(number))
        total += share.detach().double()
    dist.all_reduce(total, group=mesh.get_data_parallel_group())
    return float(total)


def plain_steps(case, steps, decisions=None):
    """Run steps by plain torch in one process.

    Return losses, clip norms, the first step's gradients, the last weights, and decisions by step and group.

    decisions: of another run, to repeat them.
    """
    model, recorded, usage = built(case), {}, []
    witness = Witness(model)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    untrained = {name: p for name, p in model.named_parameters() if not p.requires_grad}

    def forward(*args, **settings):
        losses = model(*args, **settings)
        usage.append(usage_of(losses))
        return losses

    masters = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    optimizer = plain_optimizer(masters, expert_parameters(model), case.settings)
    losses, norms, first = [], [], {}
    for number in range(1, steps + 1):
        total = 0.0
        for group in range(GROUPS):
            witness.begin(decisions and decisions[number, group])
            with torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16"):
                share = share_of(forward, case, number, group)
            if decisions is None:
                recorded[number, group] = witness.recorded_N
            share.backward()
            total += float(share.detach())
        gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named.items()}
        first = first or gradients
        norm = torch.stack([g.double().norm() for g in gradients.values()]).norm().float()
        for name, master in masters.items():
            master.grad = gradients[name].float() / ((norm + 1e-6) / CLIP).clamp(min=1.0)
        set_learning_rate(optimizer.param_groups, learning_rate_at(number))
        optimizer.step()
        with torch.no_grad():
            for name, p in named.items():
                p.copy_(masters[name])
                p.grad = None
        balance_by_bias(model, usage)
        usage.clear()
        losses.append(total)
        norms.append(float(norm))
    return losses, norms, first, {name: p.detach() for name, p in (masters | untrained).items()}, recorded


def within(bounds, key, actual, expected, where):
    """Assert the bound of `make verify` for a distance, in units of the largest expected entry."""
    actual, expected = (torch.as_tensor(x, dtype=torch.float64) for x in (actual, expected))
    distance = float((actual - expected).abs().max() / expected.abs().max().clamp(min=1e-300))
    assert distance <= bounds.get(key, float("inf")), f"{where}: {key} differs by {distance:.1e}"
