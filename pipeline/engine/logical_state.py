"""Weights, gradients and optimizer state by logical name, from the flat partitions that ZeRO keeps of them.

ZeRO attaches a map to each parameter, `_hp_mapping`, which says where its part is in a partition (contract-tested).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from pipeline.engine import adafactor
from pipeline.engine.adafactor import Adafactor, Block, Contents, Fragment
from pipeline.engine.checkpoint.writers import Part, names_to_write
from pipeline.engine.expert_bias import moving_routers
from pipeline.engine.optimizer import matrices_of
from pipeline.engine.replicas import Drift, Replica, repair
from pipeline.model.transformer import Transformer
from pipeline.parallel.layout import AXES
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import parameter_cuts

MODEL, EMA = "model", "ema"  # kinds of state, besides the optimizer's
FLOAT = 4  # bytes


class LogicalState:
    """The state of one model under ZeRO. Tensors that the layout cuts are DTensors with global dimensions.

    A parameter without a gradient is not in ZeRO's partitions. Its state is its value, and an average of it. A frozen
    weight is its own average; a bias that balances experts moves, and has one.

    experts: names of the experts' parameters.
    ema: decay of a moving average of the weights; 0 for none.
    moments: names of the state that the optimizer has for each element (`OptimizerKind.moments`).
    """

    def __init__(
        self, model: Transformer, zero: Any, mesh: Mesh, experts: set[str], *, ema: float, moments: tuple[str, ...]
    ) -> None:
        self._named: list[tuple[str, Any]] = list(model.named_parameters())
        self._trained = {name: parameter for name, parameter in self._named if parameter.requires_grad}
        moving = {id(router.bias_E) for router in moving_routers(model).values()}
        self._biases = {name: parameter for name, parameter in self._named if id(parameter) in moving}
        self._averages: dict[str, Tensor] = {}  # of biases
        self._changing = {**self._trained, **self._biases}
        self._zero, self._mesh, self._experts, self._ema = zero, mesh, experts, ema
        self._cuts = parameter_cuts(model, mesh.layout)
        self._partitions: list[Tensor] = zero.single_partition_of_fp32_groups
        self._adafactor: Adafactor | None = zero.optimizer if isinstance(zero.optimizer, Adafactor) else None
        self._moments = self._kinds = moments
        if self._adafactor is not None:
            self._kinds = (adafactor.ROW, adafactor.COLUMN, *moments)
            self._lay_out(self._adafactor)
        if ema:
            self._kinds += (EMA,)
        self._copied = {name: self._copied_over(name) for name in self._changing}
        for axes in dict.fromkeys(self._copied.values()):
            mesh.group(*axes)  # now, because this is a collective

    def gradients(self) -> dict[str, Tensor]:
        """Return what `Engine.gradients` does."""
        return {
            name: self._logical(name, _full_gradient(p) / self._zero.loss_scale) for name, p in self._trained.items()
        }

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield full float32 masters by logical name. A collective."""
        for name, parameter in self._named:
            yield f"{MODEL}.{name}", self._whole(MODEL, name, parameter)

    def tensors(self, *, to_write: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Yield what `Engine.tensors` does; with to_write, what `Engine.tensors_to_write` does."""
        self._link()
        entries = [
            (kind, name, p) for kind in (MODEL, *self._kinds) for name, p in self._named if self._has(kind, name)
        ]
        names = self._names_to_write(entries) if to_write else None
        for kind, name, parameter in entries:
            tensor = self._whole(kind, name, parameter)
            if names is None or f"{kind}.{name}" in names:
                yield f"{kind}.{name}", tensor

    def _names_to_write(self, entries: list[tuple[str, str, Any]]) -> set[str]:
        """Return the names of the tensors of which this process writes its part. entries: kind, name and parameter."""
        parts, mesh = [], self._mesh
        for kind, name, parameter in entries:
            axes, size = set(self._cuts.get(name, {})), FLOAT * parameter.numel()
            if name in (factors := self._factors(kind)):
                axes, size = axes - self._inner_cuts(name).keys(), factors[name].nbytes
            parts.append(Part(f"{kind}.{name}", tuple(axes), size))
        return names_to_write(parts, mesh.layout.sizes, {axis: mesh.rank(axis) for axis in AXES})

    def _whole(self, kind: str, name: str, parameter: Any) -> Tensor:
        """Return a new tensor with the state of a parameter, gathered from ZeRO's partitions. A collective."""
        if name not in self._trained:
            value = self._averages[name] if kind == EMA and name in self._biases else parameter.detach()
            return self._logical(name, value.to(torch.float32, copy=True))
        if name in (factors := self._factors(kind)):
            return self._logical(name, factors[name].clone(), whole_matrices=True)
        return self._logical(name, parameter.get_full_hp_param(None if kind == MODEL else kind))

    def load(self, state: dict[str, Tensor]) -> None:
        """Do what `Engine.load` does."""
        self._link()
        for name, parameter in self._named:
            value = _local(state[f"{MODEL}.{name}"])
            parameter.data.copy_(value)
            if name not in self._trained:
                if self._ema and name in self._biases:
                    self._averages[name] = _local(state[f"{EMA}.{name}"]).clone()
                continue
            parameter.set_full_hp_param(value)
            for kind in self._kinds:
                if name in (factors := self._factors(kind)):
                    factors[name].copy_(_local(state[f"{kind}.{name}"]))
                elif self._has(kind, name):
                    parameter.set_full_hp_param(_local(state[f"{kind}.{name}"]), kind)

    def repair_copies(self) -> Drift | None:
        """Do what `Engine.repair_copies` does."""
        self._link()
        drift = repair(list(self._replicas()), self._mesh)
        for name, parameter in self._trained.items():
            if drift is not None and f"{MODEL}.{name}" in drift.names:
                parameter.data.copy_(parameter.get_full_hp_param())
        return drift

    def _replicas(self) -> Iterator[Replica]:
        """Yield this process's state of all parameters that processes outside of ZeRO's group have as well."""
        for kind in (MODEL, *self._kinds):
            for name, parameter in self._changing.items():
                if (axes := self._copied[name]) and self._has(kind, name):
                    if name in self._biases:
                        values, mapping = self._averages[name] if kind == EMA else parameter, None
                    else:
                        values, mapping = self._factors(kind).get(name), parameter._hp_mapping
                    if values is None and mapping is not None:
                        values = mapping.get_hp_fragment(None if kind == MODEL else kind)
                    yield Replica(name=f"{kind}.{name}", axes=axes, values=None if values is None else values.detach())

    def _copied_over(self, name: str) -> tuple[str, ...]:
        """Return the axes whose processes update the same elements of a parameter, each by itself."""
        layout = self._mesh.layout
        partitioned = layout.expert_copies if name in self._experts else layout.batch_axes
        apart = (*partitioned, *self._cuts.get(name, ()))
        return tuple(axis for axis in AXES if axis not in apart and layout.sizes[axis] > 1)

    def allocate(self, updates: int) -> None:
        """Give every partition the optimizer's state after `updates` updates, with zeros for moments.

        An average starts at the weights.
        """
        self._average_biases(1.0)
        for partition in self._partitions:
            if self._adafactor is not None:
                self._adafactor.allocate(partition, updates)
            else:
                self._zero.optimizer.state[partition] = {
                    "step": torch.tensor(float(updates), device=partition.device),
                    **{moment: torch.zeros_like(partition, requires_grad=False) for moment in self._moments},
                }
            if self._ema:
                self._zero.optimizer.state[partition][EMA] = partition.detach().clone()

    def move_average(self, updates: int) -> None:
        """Update the average of this process's partitions, after an update of the weights.

        The average is in the optimizer's state, which ignores it. It starts at the weights after the first update.
        """
        self._average_biases(1.0 if updates == 1 else 1 - self._ema)
        for partition in self._partitions:
            state = self._zero.optimizer.state[partition]
            if updates == 1:
                state[EMA] = partition.detach().clone()
            else:
                state[EMA].lerp_(partition.detach(), 1 - self._ema)

    def _average_biases(self, share: float) -> None:
        """Move the averages of biases towards their values by this share, if there are averages."""
        for name, parameter in self._biases.items() if self._ema else ():
            value = parameter.detach().float()
            self._averages[name] = torch.lerp(self._averages.get(name, value), value, share)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the model compute with the moving average. A collective."""
        self._link()
        weights = {name: parameter.detach().clone() for name, parameter in self._changing.items()}
        for name, parameter in self._changing.items():
            parameter.data.copy_(self._averages[name] if name in self._biases else parameter.get_full_hp_param(EMA))
        try:
            yield
        finally:
            for name, parameter in self._changing.items():
                parameter.data.copy_(weights[name])

    def _lay_out(self, optimizer: Adafactor) -> None:
        """Tell Adafactor which parts of matrices are in this process's partitions, and which processes have the others.

        These are ZeRO's group, and the processes of axes that cut R or C of a matrix in the partition. If such an axis
        does not cut a matrix, the first process on the axis counts it.
        """
        names = {id(parameter): name for name, parameter in self._named}
        for partition, parameters in zip(self._partitions, self._zero.bit16_groups, strict=True):
            members = {names[id(parameter)]: parameter for parameter in parameters}
            experts = not self._experts.isdisjoint(members)
            shared = self._mesh.layout.expert_copies if experts else self._mesh.layout.batch_axes
            cutting = {axis for name in members for axis in self._inner_cuts(name)}
            fragments = [self._fragment(name, parameter, cutting) for name, parameter in members.items()]
            optimizer.lay_out(partition, Contents(fragments=fragments, group=self._mesh.group(*shared, *cutting)))

    def _inner_cuts(self, name: str) -> dict[str, int]:
        """Return the dimensions of a parameter's matrices that axes cut. E is none, because each expert is a matrix."""
        letters = name.rpartition("_")[2]
        return {axis: dim for axis, dim in self._cuts.get(name, {}).items() if letters[dim] != "E"}

    def _fragment(self, name: str, parameter: Any, cutting: set[str]) -> Fragment:
        cuts, mapping, mesh = self._inner_cuts(name), parameter._hp_mapping, self._mesh
        part, shape = matrices_of(name, parameter, self._experts), list(parameter.shape)
        for axis, dim in cuts.items():
            shape[dim] *= mesh.size(axis)
        whole = matrices_of(name, torch.empty(shape, device="meta"), self._experts)
        (rank,) = [mesh.rank(axis) for axis in cuts] or [0]  # one axis at most cuts H, N or V
        row, column = (rank * part.R if part.R < whole.R else 0), (rank * part.C if part.C < whole.C else 0)
        counted = not any(mesh.rank(axis) for axis in cutting - cuts.keys())
        address = mapping.lp_fragment_address if mapping else None
        return Fragment(
            name=name,
            matrices=whole,
            start=address.start if address else 0,
            size=address.numel if address else 0,
            place=mapping.get_hp_fragment_address().start if mapping else 0,
            block=Block(row, column, part.R, part.C),
            counted=counted,
        )

    def _factors(self, kind: str) -> dict[str, Tensor]:
        """Return Adafactor's rows or columns by name, whole on every process; empty for another kind."""
        if kind not in (adafactor.ROW, adafactor.COLUMN):
            return {}
        return {n: t for p in self._partitions for n, t in self._zero.optimizer.state[p][kind].items()}

    def _has(self, kind: str, name: str) -> bool:
        """Return true if a checkpoint has a tensor of this kind for the parameter."""
        if name not in self._trained or kind in (MODEL, EMA):
            return kind in (MODEL, EMA)
        if self._adafactor is None:
            return True
        if kind in (adafactor.ROW, adafactor.COLUMN):
            return name in self._factors(kind)
        return kind == adafactor.FULL and name not in self._factors(adafactor.ROW)

    def _logical(self, name: str, full: Tensor, *, whole_matrices: bool = False) -> Tensor:
        """Return this process's part of a tensor as a DTensor, if the layout cuts it.

        whole_matrices: the tensor is cut between matrices alone, as rows and columns are.
        """
        cuts, inner = self._cuts.get(name, {}), self._inner_cuts(name) if whole_matrices else {}
        axes = [axis for axis in AXES if axis in cuts and axis not in inner]
        if not axes:
            return full
        placements = [Shard(cuts[axis]) for axis in axes]
        return DTensor.from_local(full, self._mesh.submesh(*axes), placements, run_check=False)

    def _link(self) -> None:
        """Link the moments of all groups. DeepSpeed stops after the first group that has stepped (contract-tested)."""
        self._zero._hp_optimizer_states_linked = False
        self._zero._lazy_init_hp_params_optimizer_state()


def _local(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _full_gradient(parameter: Any) -> Tensor:
    """Return a full gradient from ZeRO's partitions, in their dtype. DeepSpeed's own method rounds to float32."""
    full = torch.zeros_like(parameter).flatten()
    if parameter._hp_mapping is not None:
        place = parameter._hp_mapping.lp_fragment_address
        part = parameter._hp_mapping.get_lp_grad_fragment(parameter._index_in_param_group)
        full[place.start : place.start + place.numel] = part.flatten()
    torch.distributed.all_reduce(full, group=parameter._dp_group)
    return full.view_as(parameter)
