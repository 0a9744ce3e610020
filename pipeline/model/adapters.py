"""Low-rank adapters of projections (LoRA, arXiv:2106.09685).

The legend of dimensions is in `pipeline.model.lora`. A projection without an adapter computes as before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from pipeline.model.dropout import dropout
from pipeline.model.lora import LoraConfig, is_target, matrices
from pipeline.model.projection import project

Convert = Callable[[Tensor], Tensor]


class Adapter(nn.Module):
    """Two narrow matrices A and B for one weight. B starts at zero, so a new adapter changes nothing.

    leaf, weight: name and value of the weight, such as wq_MND.
    enter: by name, a function for a matrix of which each process uses the whole, for a part of the output. It adds up
        the gradients of these processes. The partitioner sets it.
    """

    def __init__(self, leaf: str, weight: Tensor, config: LoraConfig) -> None:
        super().__init__()
        self.scale, self.dropout = config.scale, config.dropout
        self.names = tuple(matrices(leaf, weight.shape, config.rank))
        for name, sizes in matrices(leaf, weight.shape, config.rank).items():
            self.register_parameter(name, nn.Parameter(torch.empty(sizes)))
        self.zero_initialized = frozenset({self.names[1]})
        self.enter: dict[str, Convert] = {}

    def forward(self, x: Tensor) -> Tensor:
        a, b = (self.enter[name](matrix) if name in self.enter else matrix for name, matrix in self._matrices())
        return project(project(dropout(x, self.dropout, self.training), a), b) * self.scale

    def _matrices(self) -> list[tuple[str, Tensor]]:
        return [(name, self.get_parameter(name)) for name in self.names]


def add_adapters(model: nn.Module, config: LoraConfig) -> None:
    """Give every projection that is a target an adapter. Modules with projections have a dict of `adapters`."""
    for name, weight in list(model.named_parameters()):
        if is_target(name, config.targets):
            prefix, _, leaf = name.rpartition(".")
            adapters = model.get_submodule(prefix).adapters
            assert isinstance(adapters, nn.ModuleDict)
            adapters[leaf] = Adapter(leaf, weight, config)


def adapted(y: Tensor, x: Tensor, adapters: nn.ModuleDict, leaf: str) -> Tensor:
    """Return the projection y of x by a weight, with what its adapter adds if it has one."""
    return y + adapters[leaf](x) if leaf in adapters else y


@contextmanager
def merged(model: nn.Module) -> Iterator[None]:
    """Let the weights have what their adapters add, and no adapters, as long as the context lasts.

    Afterwards the weights have their old bits. No adapter may be cut.
    """
    modules = [(module, getattr(module, "adapters", None)) for module in model.modules()]
    owners = [(module, adapters) for module, adapters in modules if isinstance(adapters, nn.ModuleDict)]
    old_values: list[tuple[Tensor, Tensor]] = []
    try:
        for owner, adapters in owners:
            for leaf, adapter in adapters.items():
                assert isinstance(adapter, Adapter)
                weight = owner.get_parameter(leaf).data
                old_values.append((weight, weight.clone()))
                a, b = (matrix.detach().double() for _, matrix in adapter._matrices())
                weight.copy_(weight.double() + merged_difference(a, b, adapter.scale))
            owner.adapters = nn.ModuleDict()
        yield
    finally:
        for weight, values in old_values:
            weight.copy_(values)
        for owner, adapters in owners:
            owner.adapters = adapters


def merged_difference(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Return scale · A · B in the shape of the weight: what merging an adapter adds to it."""
    return (scale * (a.flatten(0, -2) @ b.flatten(1))).view(*a.shape[:-1], *b.shape[1:])
