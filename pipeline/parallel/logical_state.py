"""Weights, gradients and optimizer state by logical name, from the flat partitions that ZeRO keeps of them.

A parameter's part of a partition is found by the map that ZeRO hangs on it (`_hp_mapping`; contract-tested).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard

from pipeline.model.transformer import Transformer
from pipeline.parallel import adafactor
from pipeline.parallel.adafactor import Adafactor, Block, Contents, Fragment
from pipeline.parallel.layout import AXES
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.optimizer import matrices_of
from pipeline.parallel.partition import parameter_cuts

MOMENTS = ("exp_avg", "exp_avg_sq")
EMA = "ema"


class LogicalState:
    """Of one model under ZeRO. experts: names of their parameters. What the layout cuts comes as DTensors with
    global dimensions. ema: decay of a moving average of the weights, 0 for none."""

    def __init__(self, model: Transformer, zero: Any, mesh: Mesh, experts: set[str], ema: float) -> None:
        self._named: list[tuple[str, Any]] = list(model.named_parameters())
        self._zero, self._mesh, self._experts, self._ema = zero, mesh, experts, ema
        self._cuts = parameter_cuts(model, mesh.layout)
        self._partitions: list[Tensor] = zero.single_partition_of_fp32_groups
        self._adafactor: Adafactor | None = zero.optimizer if isinstance(zero.optimizer, Adafactor) else None
        self._kinds: tuple[str, ...] = MOMENTS
        if self._adafactor is not None:
            self._kinds = (adafactor.ROW, adafactor.COLUMN, adafactor.FULL)
            self._lay_out(self._adafactor)
        if ema:
            self._kinds += (EMA,)

    def gradients(self) -> dict[str, Tensor]:
        """As `Engine.gradients`."""
        return {name: self._logical(name, _full_gradient(p) / self._zero.loss_scale) for name, p in self._named}

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self._named:
            yield f"model.{name}", self._logical(name, parameter.get_full_hp_param())

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """As `Engine.tensors`."""
        self._link()
        yield from self.weights()
        for kind in self._kinds:
            for name, parameter in self._named:
                if name in (factors := self._factors(kind)):
                    yield f"{kind}.{name}", self._logical(name, factors[name].clone(), whole_matrices=True)
                elif self._has(kind, name, parameter):
                    yield f"{kind}.{name}", self._logical(name, parameter.get_full_hp_param(kind))

    def load(self, state: dict[str, Tensor]) -> None:
        """As `Engine.load`."""
        self._link()
        for name, parameter in self._named:
            value = _local(state[f"model.{name}"])
            parameter.data.copy_(value)
            parameter.set_full_hp_param(value)
            for kind in self._kinds:
                if name in (factors := self._factors(kind)):
                    factors[name].copy_(_local(state[f"{kind}.{name}"]))
                elif self._has(kind, name, parameter):
                    parameter.set_full_hp_param(_local(state[f"{kind}.{name}"]), kind)

    def allocate(self, updates: int) -> None:
        """Give every partition the state that the optimizer has after `updates` updates, zeros for moments; an average
        starts at the weights."""
        for partition in self._partitions:
            if self._adafactor is not None:
                self._adafactor.allocate(partition, updates)
            else:
                self._zero.optimizer.state[partition] = {
                    "step": torch.tensor(float(updates), device=partition.device),
                    **{moment: torch.zeros_like(partition, requires_grad=False) for moment in MOMENTS},
                }
            if self._ema:
                self._zero.optimizer.state[partition][EMA] = partition.detach().clone()

    def move_average(self, updates: int) -> None:
        """After an update of the weights, of this process's partitions; the average starts at the weights after the
        first. It is state of the optimizer, which knows nothing of it."""
        for partition in self._partitions:
            state = self._zero.optimizer.state[partition]
            if updates == 1:
                state[EMA] = partition.detach().clone()
            else:
                state[EMA].lerp_(partition.detach(), 1 - self._ema)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Compute with the moving average. A collective."""
        self._link()
        kept = [parameter.detach().clone() for _, parameter in self._named]
        for _, parameter in self._named:
            parameter.data.copy_(parameter.get_full_hp_param(EMA))
        try:
            yield
        finally:
            for (_, parameter), value in zip(self._named, kept, strict=True):
                parameter.data.copy_(value)

    def _lay_out(self, optimizer: Adafactor) -> None:
        """Tell Adafactor which parts of which matrices are in this process's partitions, and who has the rest: ZeRO's
        group, and over axes that cut R or C of any of them its copies. Where such an axis does not cut a matrix, the
        first process on it counts."""
        names = {id(parameter): name for name, parameter in self._named}
        for partition, parameters in zip(self._partitions, self._zero.bit16_groups, strict=True):
            members = {names[id(parameter)]: parameter for parameter in parameters}
            experts = not self._experts.isdisjoint(members)
            shared = self._mesh.layout.expert_copies if experts else self._mesh.layout.batch_axes
            cutting = {axis for name in members for axis in self._inner_cuts(name)}
            fragments = [self._fragment(name, parameter, cutting) for name, parameter in members.items()]
            optimizer.lay_out(partition, Contents(fragments=fragments, group=self._mesh.group(*shared, *cutting)))

    def _inner_cuts(self, name: str) -> dict[str, int]:
        """Of a parameter's matrices: dimensions by axis, without experts, which are matrices of their own."""
        letters = name.rpartition("_")[2]
        return {axis: dim for axis, dim in self._cuts.get(name, {}).items() if letters[dim] != "E"}

    def _fragment(self, name: str, parameter: Any, cutting: set[str]) -> Fragment:
        cuts, mapping, mesh = self._inner_cuts(name), parameter._hp_mapping, self._mesh
        mine, shape = matrices_of(name, parameter, self._experts), list(parameter.shape)
        for axis, dim in cuts.items():
            shape[dim] *= mesh.size(axis)
        whole = matrices_of(name, torch.empty(shape, device="meta"), self._experts)
        (rank,) = [mesh.rank(axis) for axis in cuts] or [0]  # H, N or V
        row, column = (rank * mine.R if mine.R < whole.R else 0), (rank * mine.C if mine.C < whole.C else 0)
        counted = not any(mesh.rank(axis) for axis in cutting - cuts.keys())
        of = mapping.lp_fragment_address if mapping else None
        return Fragment(
            name=name,
            matrices=whole,
            start=of.start if of else 0,
            size=of.numel if of else 0,
            place=mapping.get_hp_fragment_address().start if mapping else 0,
            block=Block(row, column, mine.R, mine.C),
            counted=counted,
        )

    def _factors(self, kind: str) -> dict[str, Tensor]:
        """Adafactor's rows or columns by name, whole on every process; none of another kind."""
        if kind not in (adafactor.ROW, adafactor.COLUMN):
            return {}
        return {n: t for p in self._partitions for n, t in self._zero.optimizer.state[p][kind].items()}

    def _has(self, kind: str, name: str, parameter: nn.Parameter) -> bool:
        """Whether there is state of the kind, element by element."""
        if self._adafactor is None or kind == EMA:
            return True
        return kind == adafactor.FULL and not matrices_of(name, parameter, self._experts).factored

    def _logical(self, name: str, full: Tensor, *, whole_matrices: bool = False) -> Tensor:
        """The part `full` of this process as a part of all; whole_matrices: cut between matrices alone."""
        cuts, inner = self._cuts.get(name, {}), self._inner_cuts(name) if whole_matrices else {}
        axes = [axis for axis in AXES if axis in cuts and axis not in inner]
        if not axes:
            return full
        placements = [Shard(cuts[axis]) for axis in axes]
        return DTensor.from_local(full, self._mesh.submesh(*axes), placements, run_check=False)

    def _link(self) -> None:
        """Link every group's moments; DeepSpeed stops after the first group that has stepped (contract-tested)."""
        self._zero._hp_optimizer_states_linked = False
        self._zero._lazy_init_hp_params_optimizer_state()


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _full_gradient(parameter: Any) -> Tensor:
    """From the parts that ZeRO's partitions hold, in their dtype; DeepSpeed's own way to it rounds to float32."""
    full = torch.zeros_like(parameter).flatten()
    if parameter._hp_mapping is not None:
        place = parameter._hp_mapping.lp_fragment_address
        part = parameter._hp_mapping.get_lp_grad_fragment(parameter._index_in_param_group)
        full[place.start : place.start + place.numel] = part.flatten()
    torch.distributed.all_reduce(full, group=parameter._dp_group)
    return full.view_as(parameter)
