"""Run a few steps, with the engine on any topology or with plain torch, which is the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from pipeline.engine.adafactor import Adafactor, Contents
from pipeline.engine.checkpoint.logical import load, save
from pipeline.engine.checkpoint.weights import read_state
from pipeline.engine.deepspeed import Engine
from pipeline.engine.optimizer import OptimizerSettings, matrices_of, optimizer_of, set_learning_rate
from pipeline.jobs.process import StopRequest
from pipeline.model.components import rate_factor
from pipeline.model.initialization import initialize
from pipeline.model.moe.routers import TopKRouter
from pipeline.model.noise import seed_group
from pipeline.model.transformer import Losses, Transformer
from pipeline.parallel.build import build
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters
from pipeline.stopping import Stopped
from pipeline.verify.batches import SHAPE, VOCABULARY, SyntheticStep, synthetic_step
from pipeline.verify.comparison import LARGEST, SMALLEST
from pipeline.verify.config import Case, VerifyJob
from pipeline.verify.routes import Witness

SEED = 1
LABEL_SMOOTHING = 0.1
CLIP = 1.0  # smaller than the norms that occur, so that clipping is compared too
SETTINGS = OptimizerSettings(weight_decay=0.01, rate_factors={"experts": 0.5})
LEARNING_RATE, WARMUP = 3e-3, 10


@dataclass(kw_only=True)
class Outcome:
    """The results of a run, of all processes together.

    losses, norms: of each step.
    gradients: of the first step, before clipping.
    weights: after the last step.
    served: masks of `Witness.served_TE` by step and group.

    Of plain torch alone:

    recorded: decisions for `Witness.begin`, by step and group.
    later_gradients: of the step after a checkpoint.
    early_weights: after as many steps as a short run has.
    """

    losses: list[Tensor] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    later_gradients: dict[str, Tensor] = field(default_factory=dict)
    early_weights: dict[str, Tensor] = field(default_factory=dict)
    served: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    recorded: dict[tuple[int, int], Tensor] = field(default_factory=dict)


class Passes:
    """Forward passes of single groups, with draws that depend on step and group, and with a witness."""

    def __init__(self, model: Transformer, decisions: Tensor | None = None) -> None:
        """Take over the decisions of a reference, [steps, groups, N], if there are any."""
        self._device = next(model.parameters()).device
        self._witness = Witness(model)
        self.usage: list[Tensor] = []  # of each group since this was last cleared
        self._decisions = None if decisions is None else decisions.to(self._device)

    def share(
        self, forward: Transformer | Engine, step: SyntheticStep, number: int, group: int, outcome: Outcome
    ) -> Tensor:
        """Return the share of a group in the loss of step `number`."""
        self._witness.begin(None if self._decisions is None else self._decisions[number - 1, group])
        seed_group(SEED, number, group)
        losses = forward(step.groups[group].to(self._device), label_smoothing=LABEL_SMOOTHING)
        outcome.served[number, group] = self._witness.served_TE
        self.usage.append(usage_of(losses))
        if self._decisions is None:
            outcome.recorded[number, group] = self._witness.recorded_N
        share: Tensor = losses.share(target_tokens=step.target_tokens, nonempty_groups=step.nonempty_groups)
        return share


class EngineRun:
    """Steps of the engine on one topology, in all processes of the world. decisions: as of `Passes`."""

    def __init__(self, case: Case, mesh: Mesh, optimizer: str, decisions: Tensor | None = None) -> None:
        model = build_model(case, mesh).to(mesh.device)
        self._passes = Passes(model, decisions)
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
        self._state: dict[str, Tensor] = {}  # allocated once for all calls of `load`

    def steps(self, first: int, last: int, stop: StopRequest, checkpoints: Mapping[int, Path] | None = None) -> Outcome:
        """Run steps from `first` to `last`. A collective. checkpoints: directories to save to, by step."""
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
        """Replace all state by that of a checkpoint. A collective."""
        self.engine.resume(read_state(directory)["engine"])
        self._state = self._state or self.engine.state()
        load(directory, self._state)
        self.engine.load(self._state)

    def _step(self, number: int, outcome: Outcome, *, note: bool) -> None:
        """Run one step. note: keep its gradients in the outcome."""
        step, mesh = synthetic_step(number, self._groups), self._mesh
        total = torch.zeros((), dtype=torch.float64, device=mesh.device)
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


def run_plain(case: Case, job: VerifyJob, stop: StopRequest, device: torch.device) -> Outcome:
    """Run the steps of a case with plain torch in one process.

    This uses autograd, and torch's AdamW or our Adafactor on whole parameters. Masters and the clip norm are float32,
    like those of the engine.
    """
    model = build_model(case).to(device)
    outcome = Outcome()
    passes = Passes(model)
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    untrained = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    masters = {name: nn.Parameter(p.detach().float()) for name, p in named.items()}
    optimizer = plain_optimizer(masters, expert_parameters(model), replace(SETTINGS, kind=job.optimizer))
    for number in range(1, job.steps + 1):
        if stop:
            raise Stopped("verify")
        step = synthetic_step(number, case.groups)
        total = torch.zeros((), dtype=torch.float64, device=device)
        for group in range(case.groups):
            with torch.autocast(device.type, torch.bfloat16, enabled=case.precision == "bf16"):
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
            balance_by_bias(model, passes.usage)
            passes.usage.clear()
        outcome.losses.append(total)
        outcome.norms.append(float(norm))
        if number == job.short:
            outcome.early_weights = {name: p.detach().float().clone() for name, p in (masters | untrained).items()}
    outcome.weights = {name: p.detach().float() for name, p in (masters | untrained).items()}
    return outcome


def usage_of(losses: Losses) -> Tensor:
    """Return the choices of each expert in each MoE layer before capacity, [L, E]."""
    return torch.stack([layer.usage_PE.sum(dim=0) for layer in losses.statistics])


@torch.no_grad()
def balance_by_bias(model: Transformer, usage: Sequence[Tensor]) -> None:
    """Move the bias of each gate that has one and trains (arXiv:2408.15664). usage: `usage_of` all groups of a step."""
    for usage_E, layer in zip(torch.stack([*usage]).sum(dim=0), model.moe_layers().values(), strict=True):
        router = layer.router
        if isinstance(router, TopKRouter) and router.bias_E is not None and router.wg_EM.requires_grad:
            mean = usage_E.double().mean()
            signs_E = (usage_E < mean).float() - (usage_E > mean).float()
            router.bias_E.copy_(router.bias_E.float() + router.config.bias_rate * signs_E)


def plain_optimizer(
    masters: dict[str, nn.Parameter], experts: set[str], settings: OptimizerSettings
) -> torch.optim.Optimizer:
    """Return the optimizer of whole parameters, each in a group of its own. Biases and norms do not decay."""
    groups: list[dict[str, Any]] = [
        {
            "params": [master],
            "factor": rate_factor(name, settings.rate_factors),
            "weight_decay": 0.0 if master.dim() < 2 or name.endswith(("_E1H", "_E1M")) else settings.weight_decay,
        }
        for name, master in masters.items()
    ]
    optimizer = optimizer_of(groups, settings)
    if isinstance(optimizer, Adafactor):
        for name, master in masters.items():
            optimizer.lay_out(master, Contents.whole(master, matrices_of(name, master, experts)))
    return optimizer


def build_model(case: Case, mesh: Mesh | None = None) -> Transformer:
    """Return the whole model; with a mesh, this process's part, built as in training."""
    sizes: dict[str, Any] = {
        "source_vocabulary": VOCABULARY,
        "target_vocabulary": VOCABULARY,
        "max_positions": max(SHAPE.source, SHAPE.target),
    }
    if mesh is None:
        model = Transformer(case.model, shared=False, **sizes)
        initialize(model, SEED)
    else:
        model = build(case.model, mesh, shared=False, seed=SEED, **sizes)
    return model.double() if case.precision == "float64" else model


def learning_rate_at(number: int) -> float:
    return LEARNING_RATE * min(1.0, number / WARMUP)


def whole(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return whole tensors of those that are cut. A collective."""
    return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}


def gathered(parts: dict[tuple[int, int], Tensor], groups: int, mesh: Mesh | None) -> Tensor:
    """Return the tensors of all steps and groups as one, [steps, groups, N]. A collective.

    parts: the tensors of this process by step and group, all of one size.
    mesh: None for a single process.
    """
    flat = {key: value.flatten().int() for key, value in parts.items()}
    size, first = next(iter(flat.values())).numel(), min(number for number, _ in flat)
    steps = max(number for number, _ in flat) - first + 1
    total = next(iter(flat.values())).new_zeros(steps, groups, size)
    for (number, group), value in flat.items():
        total[number - first, group] = value
    if mesh is not None:
        dist.all_reduce(total, group=mesh.get_data_parallel_group())
    return total


def extremes(tensors: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return the largest and the smallest entries over all processes, of tensors that differ. A collective.

    device: on which processes exchange tensors.
    """
    values = torch.cat([tensor.flatten().double().to(device) for tensor in tensors.values()])
    bounds = torch.stack((values, -values))
    dist.all_reduce(bounds, op=dist.ReduceOp.MAX)
    sizes = [tensor.numel() for tensor in tensors.values()]
    highs, lows = torch.split(bounds[0].cpu(), sizes), torch.split(-bounds[1].cpu(), sizes)
    result = {}
    for (name, tensor), high, low in zip(tensors.items(), highs, lows, strict=True):
        if not torch.equal(high, low):
            result[name + LARGEST], result[name + SMALLEST] = high.view_as(tensor).clone(), low.view_as(tensor).clone()
    return result


def stacked(values: Sequence[Tensor | float]) -> Tensor:
    """Return numbers as one float64 tensor."""
    return torch.tensor([float(value) for value in values], dtype=torch.float64)
