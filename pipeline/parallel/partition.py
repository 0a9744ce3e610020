"""Cut a finished single-device model over the mesh, as its layout says.

Parameters are sliced, and collectives are added from outside. Inputs of modules that are cut on H or N enter, and their
outputs leave (`conversions`). Tokens travel to experts that are cut on E (`exchange`). A vocabulary that is cut on V
has its own look-up and loss (`vocabulary`). The router and the norms stay whole.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor, nn

from pipeline.model.adapters import Adapter
from pipeline.model.attention import Attention
from pipeline.model.feed_forward import FeedForward
from pipeline.model.moe.experts import Experts
from pipeline.model.moe.layer import MoE
from pipeline.model.precision import compute_dtype
from pipeline.model.transformer import Transformer
from pipeline.parallel.annotations import split
from pipeline.parallel.conversions import enter, leave
from pipeline.parallel.exchange import compute_local, exchange_rows
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.vocabulary import look_up, token_losses

# The modules whose own parameters may be cut, with the letters
CUT: dict[type[nn.Module], str] = {Experts: "EH", FeedForward: "H", Attention: "N", Transformer: "V", Adapter: "HN"}


def parameter_cuts(model: Transformer, layout: Layout) -> dict[str, dict[str, int]]:
    """Return the dimension that each axis cuts, by name of the parameter. Axes of size 1 cut nothing."""
    cuts_by_name = {}
    for name, module, leaf in _parameters(model):
        letters = leaf.rpartition("_")[2]
        axes = {layout.axis(letter): letters.index(letter) for letter in CUT[type(module)] if letter in letters}
        if cuts := {axis: dim for axis, dim in axes.items() if axis is not None}:
            cuts_by_name[name] = cuts
    return cuts_by_name


def expert_parameters(model: Transformer) -> set[str]:
    """Return the names of the parameters whose first dimension is experts."""
    return {name for name, module, _ in _parameters(model) if isinstance(module, Experts)}


def partition(model: Transformer, mesh: Mesh) -> None:
    """Keep this process's part of every parameter, and add the collectives. Axes of size 1 change nothing.

    Raises ValueError if a size is not divisible by the number of parts.
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
        elif isinstance(module, Adapter):
            _enter_whole(module, mesh)
    if axis := layout.axis("V"):
        model.look_up = partial(look_up, group=mesh.group(axis))
        model.token_losses = partial(token_losses, group=mesh.group(axis))


def _parameters(model: Transformer) -> Iterator[tuple[str, nn.Module, str]]:
    """Yield the name, module and leaf name of each parameter that may be cut. A shared one comes once."""
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
    """Replace each parameter that is cut by this process's part, in all modules that use it."""
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
        local = part.to_local().clone()  # type: ignore[attr-defined]
        parts[whole] = nn.Parameter(local, requires_grad=whole.requires_grad)
    for module in model.modules():
        for leaf, parameter in list(module._parameters.items()):
            if parameter in parts:
                setattr(module, leaf, parts[parameter])


def _surround(module: nn.Module, mesh: Mesh, axis: str) -> None:
    """Let all inputs with a gradient enter, each once, and let the output leave."""
    group = mesh.group(axis)

    def before(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        entered: dict[int, Tensor] = {}
        for x in args:
            if isinstance(x, Tensor) and x.is_floating_point() and x.requires_grad and id(x) not in entered:
                entered[id(x)] = enter(x.to(compute_dtype(x)), group)  # gradients travel in this dtype
        return tuple(entered.get(id(x), x) for x in args)

    def after(_module: nn.Module, _args: tuple[Any, ...], output: Tensor) -> Tensor:
        return leave(output, group)

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def _enter_whole(adapter: Adapter, mesh: Mesh) -> None:
    """Let the matrix of an adapter that stays whole, beside one that is cut, enter."""
    for whole, cut in (adapter.names, adapter.names[::-1]):
        if axis := next((axis for letter in "HN" if letter in cut and (axis := mesh.layout.axis(letter))), None):
            adapter.enter[whole] = partial(enter, group=mesh.group(axis))


def _share_experts(moe: MoE, mesh: Mesh) -> None:
    """Let a layer use experts of other processes: by an all-to-all, or by a sum over the processes of an axis.

    A sum is also needed where the hidden units of every expert are cut.
    """
    layout, summed = mesh.layout, []
    if axis := layout.axis("E"):
        if layout.handed_over:
            moe.experts.exchange = partial(exchange_rows, num_experts=moe.num_experts, group=mesh.group(axis))
        else:
            moe.experts.exchange = partial(compute_local, rank=mesh.rank(axis), parts=mesh.size(axis))
            summed.append(axis)
    if axis := layout.axis("H"):
        summed.append(axis)
    if summed:
        group = mesh.group(*summed)
        moe.enter = partial(enter, group=group)
        moe.leave = partial(leave, group=group)
