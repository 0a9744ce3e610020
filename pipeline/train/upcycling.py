"""Start a model from the weights of another one, such as a Mixture-of-Experts from a dense model.

E experts, M model, H hidden.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import torch

from pipeline.engine.checkpoint.weights import read_parts, read_state, shapes_of
from pipeline.model.initialization import Part
from pipeline.model.transformer import Transformer
from pipeline.train.retention import resolve

logger = logging.getLogger(__name__)

DENSE = {"wi_EMH": "wi_MH", "wo_EHM": "wo_HM"}  # weights of experts and of a feed-forward network


def initialize_from(path: Path, model: Transformer, vocabulary: str, parts: Mapping[str, Part] | None = None) -> None:
    """Copy every weight of equal name and shape. Routers keep their new weights.

    If the checkpoint has a dense feed-forward network in the place of experts, all of them become copies of it (sparse
    upcycling, arXiv:2212.05055).

    vocabulary: sha256 of the vocabulary.
    parts: the parts of parameters that the model has (`build.parts_of`). Only these are read.

    Raises ValueError on another vocabulary, on other shapes, and if the checkpoint lacks a weight.
    """
    directory = resolve(path)
    if read_state(directory).get("vocabulary", vocabulary) != vocabulary:
        raise ValueError(f"train.initialize_from={path} was trained with another vocabulary; its embeddings do not fit")
    shapes, parts = shapes_of(directory), parts or {}
    sources: dict[str, str] = {}
    problems: list[str] = []
    for name, parameter in model.named_parameters():
        source = name if name in shapes else _dense(name)
        shape = parts[name].shape if name in parts else tuple(parameter.shape)
        if source in shapes:
            sources[name] = source
            if shapes[source] != (shape if source == name or ".experts." not in name else shape[1:]):
                problems.append(f"{name} is {list(shape)} here, {source} is {list(shapes[source])} there")
        elif not _fresh(name):
            problems.append(f"{name} is not there")
    widths = _widths(model, shapes, sources)
    if widths is not None:
        problems.insert(0, widths)
    if problems:
        raise ValueError(f"train.initialize_from={path} does not fit the model: {'; '.join(problems[:3])}")
    with torch.no_grad():
        _copy(directory, model, sources, parts)
    logger.info("%d of %d weights from %s", len(sources), len(list(model.parameters())), directory)


def _copy(directory: Path, model: Transformer, sources: Mapping[str, str], parts: Mapping[str, Part]) -> None:
    named = {name: parameter for name, parameter in model.named_parameters() if name in sources}
    into = {
        name: p if sources[name] == name or ".experts." not in name else torch.empty_like(p[0])
        for name, p in named.items()
    }
    first = {name: parts[name].starts[-tensor.dim() :] for name, tensor in into.items() if name in parts}
    read_parts(directory, into, first, sources)
    for name, parameter in named.items():
        if into[name] is not parameter:
            parameter.copy_(into[name])  # one feed-forward network is broadcast over E experts


def _dense(name: str) -> str:
    """Return the name, in a dense model, of the weight that becomes this weight of a MoE layer; empty if none."""
    prefix, _, leaf = name.rpartition(".")
    for part in (".experts", ".conditional.shared"):
        if prefix.endswith(part):
            return f"{prefix.removesuffix(part)}.{DENSE.get(leaf, leaf)}"
    return ""


def _fresh(name: str) -> bool:
    """Return true for a weight that decides about routes. Those are not copied."""
    return ".feed_forward.router." in name or name.endswith(".feed_forward.conditional.wc_M")


def _widths(model: Transformer, shapes: dict[str, tuple[int, ...]], sources: dict[str, str]) -> str | None:
    """Return the remedy if experts are wider or narrower than the dense feed-forward network, else None."""
    expert_dim = model.config.moe.expert_dim
    for name, source in sources.items():
        if name.endswith("experts.wi_EMH") and source != name and shapes[source][1] != expert_dim:
            ffn_dim = shapes[source][1]
            return (
                f"model.moe.expert_dim={expert_dim}, but its feed-forward networks have ffn_dim={ffn_dim}, of which "
                f"experts are copies; set model.moe.expert_dim={ffn_dim}"
            )
    return None
