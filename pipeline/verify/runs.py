"""One run of a few steps: by the engine on any topology, and by plain torch, which everything is compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from pipeline.model.initialization import initialize
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Transformer
from pipeline.parallel.adafactor import Adafactor, Contents
from pipeline.parallel.build import build
from pipeline.parallel.checkpoint import load, save
from pipeline.parallel.deepspeed import Engine
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.optimizer import OptimizerSettings, matrices_of, set_learning_rate
from pipeline.parallel.partition import expert_parameters
from pipeline.parallel.process import StopRequest
from pipeline.parallel.weights import read_state
from pipeline.stage import Stopped
from pipeline.verify.batches import SHAPE, VOCABULARY, SyntheticStep, synthetic_step
from pipeline.verify.comparison import LARGEST, SMALLEST
from pipeline.verify.config import Case, VerifyJob, model_of
from pipeline.verify.routes import Witness

SEED = 1
LABEL_SMOOTHING = 0.1
CLIP = 1.0  # below the norms that occur, so that clipping is compared too
SETTINGS = OptimizerSettings(weight_decay=0.01, expert_rate=0.5)
LEARNING_RATE, WARMUP = 3e-3, 10


@dataclass(kw_only=True)
class Outcome:
    """What a run gave, all processes together. losses, norms: of each step. gradients: of its first step, before
    clipping; weights: after the last one. served: of each step and group, flat. Of plain torch besides, noted:
    decisions, in a form for `Witness.begin`; later_gradients: of the step after a checkpoint; early_weights: after a
    short run.
    """

    losses: list[Tensor] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    later_gradients: dict[str, Tensor] = field(default_factory=dict)
    early_weights: dict[str, Tensor] = field(default_factory=dict)
    served: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    noted: dict[tuple[int, int], Tensor] = field(default_factory=dict)


class Passes:
    """Forward passes of single groups, with keyed draws and a witness."""

    def __init__(self, model: Transformer, given: Tensor | None = None) -> None:
        """given: decisions of a reference, [steps, groups, N], to take over."""
        self._witness, self._given = Witness(model), given

    def share(
        self, forward: Transformer | Engine, step: SyntheticStep, number: int, group: int, outcome: Outcome
    ) -> Tensor:
        """What a group adds to the loss of step `number`."""
        self._witness.begin(None if self._given is None else self._given[number - 1, group])
        seed_group(SEED, number, group)
        losses = forward(step.groups[group], label_smoothing=LABEL_SMOOTHING)
        outcome.served[number, group] = self._witness.served_TE
        if self._given is None:
            outcome.noted[number, group] = self._witness.noted_N
        share: Tensor = losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups)
        return share


class EngineRun:
    """Steps of the engine on one topology, in all processes of the world."""

    def __init__(self, case: Case, mesh: Mesh, optimizer: str, given: Tensor | None = None) -> None:
        """given: as of `Passes`."""
        model = built(case, mesh)
        self._passes = Passes(model, given)
        self._groups, self._mesh = case.groups, mesh
        self.engine = Engine(
            model,
            mesh,
            accumulation=case.accumulation,
            zero_stage=case.zero_stage,
            clip=CLIP,
            optimizer=replace(SETTINGS, kind=optimizer),
            precision=case.precision,
        )
        self.engine.train()
        self._state: dict[str, Tensor] = {}  # for `load`, over and over

    def steps(self, first: int, last: int, stop: StopRequest, checkpoints: Mapping[int, Path] | None = None) -> Outcome:
        """checkpoints: where to save one, by step. A collective, as is `load`."""
        outcome, checkpoints = Outcome(), checkpoints or {}
        for number in range(first, last + 1):
            if stop:
                raise Stopped("verify")
            self._step(number, outcome, note=number == first)
            if number in checkpoints:
                save(checkpoints[number], self.engine.state(), {"engine": self.engine.counters()})
        weights = whole(self.engine.weights())
        outcome.weights = {name.removeprefix("model."): value for name, value in weights.items()}
        return outcome

    def load(self, directory: Path) -> None:
        """A checkpoint, and nothing stays of what was."""
        self.engine.resume(read_state(directory)["engine"])
        self._state = self._state or self.engine.state()
        load(directory, self._state)
        self.engine.load(self._state)

    def _step(self, number: int, outcome: Outcome, *, note: bool) -> None:
        """note: its gradients."""
        step, mesh = synthetic_step(number, self._groups), self._mesh
        total = torch.zeros((), dtype=torch.float64)
        for group in range(mesh.batch_rank, self._groups, mesh.batch_size):
            share = self._passes.share(self.engine, step, number, group, outcome)
            self.engine.backward(share)
            if note and group >= self._groups - mesh.batch_size:
                outcome.gradients = whole(self.engine.gradients())
            self.engine.step(learning_rate_at(number))
            total += share.detach().double()
        dist.all_reduce(total, group=mesh.get_data_parallel_group())
        outcome.losses.append(total)
        outcome.norms.append(self.engine.gradient_norm)


def run_plain(case: Case, job: VerifyJob, stop: StopRequest) -> Outcome:
    """By plain torch in one process: autograd, its AdamW or our Adafactor on whole parameters, masters and clip norm in
    float32 as the engine's."""
    model = built(case)
    outcome = Outcome()
    passes = Passes(model)
    named = dict(model.named_parameters())
    masters = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    optimizer = plain_optimizer(masters, expert_parameters(model), job.optimizer)
    for number in range(1, job.steps + 1):
        if stop:
            raise Stopped("verify")
        step = synthetic_step(number, case.groups)
        total = torch.zeros((), dtype=torch.float64)
        for group in range(case.groups):
            with torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16"):
                share = passes.share(model, step, number, group, outcome)
            torch.autograd.backward(share)
            total += share.detach().double()
        gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named.items()}
        if number == 1:
            outcome.gradients = {name: gradient.clone() for name, gradient in gradients.items()}
        if number == job.saved_step + 1:
            outcome.later_gradients = {name: gradient.clone() for name, gradient in gradients.items()}
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
        if number == job.short:
            outcome.early_weights = {name: master.detach().clone() for name, master in masters.items()}
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
            adafactor.lay_out(master, Contents.whole(master, matrices_of(name, master, experts)))
        return adafactor
    betas, epsilon, weight_decay = SETTINGS.betas, SETTINGS.epsilon, SETTINGS.weight_decay
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=epsilon, weight_decay=weight_decay, fused=True)


def built(case: Case, mesh: Mesh | None = None) -> Transformer:
    """Whole; with a mesh this process's part, as training builds it."""
    sizes = {
        "source_vocabulary": VOCABULARY,
        "target_vocabulary": VOCABULARY,
        "max_positions": max(SHAPE.source, SHAPE.target),
    }
    if mesh is None:
        model = Transformer(model_of(case.gate), shared=False, **sizes)
        initialize(model, SEED)
    else:
        model = build(model_of(case.gate), mesh, shared=False, seed=SEED, **sizes)
    return model.double() if case.precision == "float64" else model


def learning_rate_at(number: int) -> float:
    return LEARNING_RATE * min(1.0, number / WARMUP)


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What is cut, all processes together. A collective."""
    return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}


def gathered(parts: dict[tuple[int, int], Tensor], groups: int, mesh: Mesh | None) -> Tensor:
    """[steps, groups, N] of what the processes have of each step and group, which are of one size. mesh: None of one
    process. A collective."""
    flat = {key: value.flatten().int() for key, value in parts.items()}
    size, first = next(iter(flat.values())).numel(), min(number for number, _ in flat)
    total = torch.zeros(max(number for number, _ in flat) - first + 1, groups, size, dtype=torch.int32)
    for (number, group), value in flat.items():
        total[number - first, group] = value
    if mesh is not None:
        dist.all_reduce(total, group=mesh.get_data_parallel_group())
    return total


def extremes(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Largest and smallest entries of all processes, of those tensors that are not the same on all. A collective."""
    mine = torch.cat([tensor.flatten().double() for tensor in tensors.values()])
    both = torch.stack((mine, -mine))
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    found = {}
    sizes = [tensor.numel() for tensor in tensors.values()]
    for (name, tensor), high, low in zip(
        tensors.items(), torch.split(both[0], sizes), torch.split(-both[1], sizes), strict=True
    ):
        if not torch.equal(high, low):
            found[name + LARGEST], found[name + SMALLEST] = high.view_as(tensor).clone(), low.view_as(tensor).clone()
    return found


def stacked(values: Sequence[Tensor | float]) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)
