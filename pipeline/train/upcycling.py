"""Start a model from the weights of another one, such as a Mixture-of-Experts from a dense model.

E experts, M model, H hidden.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import torch

from pipeline.engine.checkpoint.weights import read_parts, read_state, shapes_of
from pipeline.model.config import ModelConfig
from pipeline.model.initialization import Part
from pipeline.model.transformer import Transformer
from pipeline.parallel.shapes import parameter_shapes
from pipeline.train.retention import resolve

logger = logging.getLogger(__name__)

SIZES = ("dim", "ffn_dim", "heads", "head_dim", "encoder_layers", "decoder_layers")  # of a ModelConfig
EXPERT_SIZES = ("num_experts", "expert_dim", "every")  # of its MoEConfig
DENSE = {"wi_EMH": "wi_MH", "wo_EHM": "wo_HM"}  # weights of experts and of a feed-forward network


def initialize_from(path: Path, model: Transformer, vocabulary: str, parts: Mapping[str, Part] | None = None) -> None:
    """Copy every weight of equal name and shape. Routers keep their new weights.

    If the checkpoint has a dense feed-forward network in the place of experts, all of them become copies of it (sparse
    upcycling, arXiv:2212.05055).

    vocabulary: sha256 of the vocabulary.
    parts: the parts of parameters that the model has (`build.parts_of`). Only these are read.

    Raises ValueError on another vocabulary, on other shapes, and if the model or the checkpoint lacks a weight of the
    other.
    """
    directory = resolve(path)
    if read_state(directory).get("vocabulary", vocabulary) != vocabulary:
        raise ValueError(f"train.initialize_from={path} was trained with another vocabulary; its embeddings do not fit")
    parts = parts or {}
    shapes = {name: parts[name].shape if name in parts else tuple(p.shape) for name, p in model.named_parameters()}
    sources = _sources(str(path), directory, shapes, model.config)
    with torch.no_grad():
        _copy(directory, model, sources, parts)
    logger.info("%d of %d weights from %s", len(sources), len(list(model.parameters())), directory)


def check_fit(name: str, directory: Path, config: ModelConfig, *, shared: bool) -> None:
    """Raise ValueError if a model of this configuration cannot start from a checkpoint; pieces of vocabularies aside.

    name: what the user wrote in train.initialize_from.
    shared: whether the model has one vocabulary for both sides.
    """
    there = shapes_of(directory)
    if shared != ("source_embedding_VM" not in there):
        kind = "a vocabulary for each side" if shared else "one vocabulary for both sides"
        raise ValueError(
            f"train.initialize_from={name}: that model has {kind}, and vocab.shared={str(shared).lower()} here; use "
            "its vocabulary, by vocab.from_run and the name of its run"
        )
    sizes = {side: there.get(f"{side}_embedding_VM", (0,))[0] for side in ("source", "target")}
    shapes = parameter_shapes(
        config,
        source_vocabulary=sizes["source"],
        target_vocabulary=sizes["target"],
        shared=shared,
    )
    _sources(name, directory, {shape.name: shape.sizes for shape in shapes}, config)


def _sources(path: str, directory: Path, shapes: Mapping[str, tuple[int, ...]], config: ModelConfig) -> dict[str, str]:
    """Return the name of the checkpoint's weight that each weight becomes a copy of. Raises ValueError as its callers.

    shapes: of the model's parameters, uncut.
    """
    there = shapes_of(directory)
    sources: dict[str, str] = {}
    problems: list[str] = []
    for name, shape in shapes.items():
        source = name if name in there else _dense(name)
        if source in there:
            sources[name] = source
            if there[source] != (shape if source == name or ".experts." not in name else shape[1:]):
                problems.append(f"{name} is {list(shape)} here, {source} is {list(there[source])} there")
        elif not _fresh(name):
            problems.append(f"{name} is not there")
    problems += [f"{name} is not here" for name in there if name not in sources.values() and not _fresh(name)]
    if problems:
        remedies = [remedy for remedy in (_widths(config, there, sources), _sizes(config, directory)) if remedy]
        raise ValueError(
            f"train.initialize_from={path} does not fit the model: {'; '.join([*remedies, *problems][:3])}"
        )
    return sources


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


def _widths(config: ModelConfig, there: Mapping[str, tuple[int, ...]], sources: Mapping[str, str]) -> str:
    """Return the remedy if experts are wider or narrower than the dense feed-forward network, else an empty text."""
    expert_dim = config.moe.expert_dim
    for name, source in sources.items():
        if name.endswith("experts.wi_EMH") and source != name and there[source][1] != expert_dim:
            ffn_dim = there[source][1]
            return (
                f"model.moe.expert_dim={expert_dim}, but its feed-forward networks have ffn_dim={ffn_dim}, of which "
                f"experts are copies; set model.moe.expert_dim={ffn_dim}"
            )
    return ""


def _sizes(config: ModelConfig, directory: Path) -> str:
    """Return the remedy if sizes of the model differ from those that the checkpoint was trained with."""
    there = read_state(directory).get("model", {})
    sizes = {name: there[name] for name in SIZES if there.get(name, getattr(config, name)) != getattr(config, name)}
    if (moe := there.get("moe", {})).get("num_experts"):
        sizes |= {f"moe.{name}": moe[name] for name in EXPERT_SIZES if moe[name] != getattr(config.moe, name)}
    return f"it has {' '.join(f'model.{name}={value}' for name, value in sizes.items())}; set these" if sizes else ""
