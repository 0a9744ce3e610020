"""Cutting a finished single-device model over the mesh, as its layout says.

Parameters are sliced and the collectives put in from outside: around what is cut on H or N its input enters and its
output leaves (`conversions`), tokens travel to experts that are cut on E (`exchange`), and a vocabulary that is cut on
V has a look-up and a loss of its own (`vocabulary`). The router and the norms stay whole.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn

from pipeline.model.attention import Attention
from pipeline.model.experts import Experts, compute_dtype
from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe import MoE
from pipeline.model.transformer import Transformer
from pipeline.parallel.annotations import split
from pipeline.parallel.conversions import enter, leave
from pipeline.parallel.exchange import compute_mine, exchange_rows
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.vocabulary import look_up, token_losses

# Modules whose own parameters are cut, and on which letters
CUT: dict[type[nn.Module], str] = {Experts: "EH", FeedForward: "H", Attention: "N", Transformer: "V"}


def parameter_cuts(model: Transformer, layout: Layout) -> dict[str, dict[str, int]]:
    """Of every parameter that the layout cuts, by name: the dimension that each axis cuts. Axes of size 1 cut
    nothing."""
    found = {}
    for name, module, leaf in _parameters(model):
        letters = leaf.rpartition("_")[2]
        axes = {layout.axis(letter): letters.index(letter) for letter in CUT[type(module)] if letter in letters}
        if cuts := {axis: dim for axis, dim in axes.items() if axis is not None}:
            found[name] = cuts
    return found


def expert_parameters(model: Transformer) -> set[str]:
    """Names of the parameters whose first dimension is experts."""
    return {name for name, module, _ in _parameters(model) if isinstance(module, Experts)}


def partition(model: Transformer, mesh: Mesh) -> None:
    """Keep this process's part of every parameter, and put the collectives in; axes of size 1 change nothing.

    Raises ValueError where a size does not divide.
    """
    layout = mesh.layout
    _slice(model, mesh)
    for module in model.modules():
        if isinstance(module, MoE):
            _share_experts(module, mesh)
        elif isinstance(module, FeedForward) and (axis := layout.axis("H")):
            _surround(module, mesh, axis)
        elif isinstance(module, Attention) and (axis := layout.axis("N")):
            module.heads = module.wq_MND.shape[1]
            _surround(module, mesh, axis)
    if axis := layout.axis("V"):
        model.look_up = partial(look_up, group=mesh.group(axis))
        model.token_losses = partial(token_losses, group=mesh.group(axis))


def _parameters(model: Transformer) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, module and last part of the name of the parameters that may be cut; one that is shared comes once."""
    owners = {
        f"{prefix}.{leaf}".lstrip("."): (module, leaf)
        for prefix, module in model.named_modules()
        if type(module) in CUT
        for leaf in module._parameters
    }
    for name, _ in model.named_parameters():
        if name in owners:
            yield (name, *owners[name])


def _slice(model: Transformer, mesh: Mesh) -> None:
    """In place of each parameter that is cut this process's part, everywhere it is used."""
    named = dict(model.named_parameters())
    parts: dict[nn.Parameter, nn.Parameter] = {}
    for name, cuts in parameter_cuts(model, mesh.layout).items():
        whole, letters = named[name], name.rpartition("_")[2]
        part: Tensor = whole.detach()
        for axis, dim in cuts.items():
            try:
                part = split(part, letters[dim], axis, letters=letters, mesh=mesh.devices)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        parts[whole] = nn.Parameter(part.to_local().clone())  # type: ignore[attr-defined]
    for module in model.modules():
        for leaf, parameter in list(module._parameters.items()):
            if parameter in parts:
                setattr(module, leaf, parts[parameter])


def _surround(module: nn.Module, mesh: Mesh, axis: str) -> None:
    """All tensors that carry a gradient enter, each once; the output leaves."""
    group = mesh.group(axis)

    def before(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        entered: dict[int, Tensor] = {}
        for each in args:
            if isinstance(each, Tensor) and each.is_floating_point() and each.requires_grad and id(each) not in entered:
                entered[id(each)] = enter(each.to(compute_dtype(each)), group)  # gradients travel in it
        return tuple(entered.get(id(each), each) for each in args)

    def after(_module: nn.Module, _args: tuple[Any, ...], output: Tensor) -> Tensor:
        return leave(output, group)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def _share_experts(moe: MoE, mesh: Mesh) -> None:
    """Experts behind an all-to-all, or each process's share of them, and of every expert's hidden units."""
    layout, summed = mesh.layout, []
    if axis := layout.axis("E"):
        if layout.handed_over:
            moe.experts.exchange = partial(exchange_rows, num_experts=moe.num_experts, group=mesh.group(axis))
        else:
            moe.experts.exchange = partial(compute_mine, rank=mesh.rank(axis), parts=mesh.size(axis))
            summed.append(axis)
    if axis := layout.axis("H"):
        summed.append(axis)
    if summed:
        group = mesh.group(*summed)
        moe.enter = partial(enter, group=group)
        moe.leave = partial(leave, group=group)
