"""One run of a few steps: by the engine on any topology, and by plain torch, which everything is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.parallel.adafactor import Adafactor, Layout
from pipeline.parallel.deepspeed import Engine
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.optimizer import OptimizerSettings, matrices_of, set_learning_rate
from pipeline.parallel.partition import expert_parameters, partition
from pipeline.parallel.process import StopRequest
from pipeline.stage import Stopped
from pipeline.verify.batches import SHAPE, VOCABULARY, SyntheticStep, synthetic_step
from pipeline.verify.config import Case, model_of
from pipeline.verify.routes import Witness

SEED = 1
LABEL_SMOOTHING = 0.1
CLIP = 1.0  # below the norms that occur, so that clipping is compared too
SETTINGS = OptimizerSettings(weight_decay=0.01, expert_rate=0.5)
LEARNING_RATE, WARMUP = 3e-3, 10


@dataclass(kw_only=True)
class Outcome:
    """What a run gave, all processes together. loss, norm: of each step. gradients: of the first step, before clipping;
    weights: after the last one. served: of each step and group, flat. noted: decisions, in a form for `Witness.begin`.
    """

    losses: list[Tensor] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    served: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    noted: dict[tuple[int, int], Tensor] = field(default_factory=dict)


class Passes:
    """Forward passes of single groups, with keyed draws and a witness."""

    def __init__(self, model: Transformer, outcome: Outcome, given: Tensor | None = None) -> None:
        """given: decisions of a reference, [steps, groups, N], to take over."""
        self._witness, self._outcome, self._given = Witness(model), outcome, given

    def share(self, forward: Transformer | Engine, step: SyntheticStep, number: int, group: int) -> Tensor:
        """What a group adds to the loss of step `number`."""
        self._witness.begin(None if self._given is None else self._given[number - 1, group])
        seed_group(SEED, number, group)
        losses = forward(step.groups[group], label_smoothing=LABEL_SMOOTHING)
        self._outcome.served[number, group] = self._witness.served_TE
        if self._given is None:
            self._outcome.noted[number, group] = self._witness.noted_N
        share: Tensor = losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups)
        return share


def run_engine(case: Case, mesh: Mesh, steps: int, optimizer: str, given: Tensor | None, stop: StopRequest) -> Outcome:
    """By the engine, in all processes of the world."""
    model = built(case)
    outcome = Outcome()
    passes = Passes(model, outcome, given)
    partition(model, mesh)
    engine = Engine(
        model,
        mesh,
        accumulation=case.groups // mesh.batch_size,
        zero_stage=case.zero_stage,
        clip=CLIP,
        optimizer=replace(SETTINGS, kind=optimizer),
        precision=case.precision,
    )
    engine.train()
    for number in range(1, steps + 1):
        if stop:
            raise Stopped("verify")
        step = synthetic_step(number, case.groups)
        total = torch.zeros((), dtype=torch.float64)
        for group in range(mesh.batch_rank, case.groups, mesh.batch_size):
            share = passes.share(engine, step, number, group)
            engine.backward(share)
            if number == 1 and group >= case.groups - mesh.batch_size:
                outcome.gradients = whole(engine.gradients())
            engine.step(learning_rate_at(number))
            total += share.detach().double()
        dist.all_reduce(total, group=mesh.get_data_parallel_group())
        outcome.losses.append(total)
        outcome.norms.append(engine.gradient_norm)
    outcome.weights = whole({name.removeprefix("model."): value for name, value in engine.weights().items()})
    return outcome


def run_plain(case: Case, steps: int, optimizer_kind: str, stop: StopRequest) -> Outcome:
    """By plain torch in one process: autograd, its AdamW or our Adafactor on whole parameters, masters and clip norm in
    float32 as the engine's."""
    model = built(case)
    outcome = Outcome()
    passes = Passes(model, outcome)
    named = dict(model.named_parameters())
    masters = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    optimizer = plain_optimizer(masters, expert_parameters(model), optimizer_kind)
    for number in range(1, steps + 1):
        if stop:
            raise Stopped("verify")
        step = synthetic_step(number, case.groups)
        total = torch.zeros((), dtype=torch.float64)
        for group in range(case.groups):
            with torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16"):
                share = passes.share(model, step, number, group)
            torch.autograd.backward(share)
            total += share.detach().double()
        gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named.items()}
        if number == 1:
            outcome.gradients = {name: gradient.clone() for name, gradient in gradients.items()}
        norm = torch.stack([g.double().norm() for g in gradients.values()]).norm().float()
        factor = 1.0 / ((norm + 1e-6) / CLIP).clamp(min=1.0)
        for name, master in masters.items():
            master.grad = gradients[name].float() * factor
        set_learning_rate(optimizer.param_groups, learning_rate_at(number))
        optimizer.step()
        with torch.no_grad():
            for name, p in named.items():
                p.copy_(masters[name])
                p.grad = None
        outcome.losses.append(total)
        outcome.norms.append(float(norm))
    outcome.weights = {name: master.detach() for name, master in masters.items()}
    return outcome


def plain_optimizer(masters: dict[str, nn.Parameter], experts: set[str], kind: str) -> torch.optim.Optimizer:
    """On whole parameters."""
    dense = {name: m for name, m in masters.items() if name not in experts}
    groups: list[dict[str, Any]] = [
        {"params": [m for m in dense.values() if m.dim() > 1], "factor": 1.0},
        {"params": [m for m in dense.values() if m.dim() <= 1], "factor": 1.0, "weight_decay": 0.0},
        {"params": [masters[name] for name in sorted(experts)], "factor": SETTINGS.expert_rate},
    ]
    if kind == "adafactor":
        adafactor = Adafactor(groups, lr=0.0, weight_decay=SETTINGS.weight_decay)
        for name, master in masters.items():
            adafactor.lay_out(master, Layout.whole(master, matrices_of(name, master, experts)))
        return adafactor
    betas, epsilon, weight_decay = SETTINGS.betas, SETTINGS.epsilon, SETTINGS.weight_decay
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=epsilon, weight_decay=weight_decay, fused=True)


def built(case: Case) -> Transformer:
    model = Transformer(
        model_of(case.gate),
        source_vocabulary=VOCABULARY,
        target_vocabulary=VOCABULARY,
        shared=False,
        max_positions=max(SHAPE.source, SHAPE.target),
    )
    initialize(model, SEED)
    return model.double() if case.precision == "float64" else model


def learning_rate_at(number: int) -> float:
    return LEARNING_RATE * min(1.0, number / WARMUP)


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Experts of all processes together. A collective."""
    return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}


def gathered(parts: dict[tuple[int, int], Tensor], steps: int, groups: int) -> Tensor:
    """[steps, groups, N] of what the processes have of each step and group, which are of one size. A collective."""
    flat = {key: value.flatten().int() for key, value in parts.items()}
    size = next(iter(flat.values())).numel()
    total = torch.zeros(steps, groups, size, dtype=torch.int32)
    for (number, group), value in flat.items():
        total[number - 1, group] = value
    dist.all_reduce(total)
    return total


def stacked(values: Sequence[Tensor | float]) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)
