"""Start a model from the weights of another one, such as a Mixture-of-Experts from a dense model.

E experts, M model, H hidden.
"""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F

from pipeline.engine.checkpoint.weights import read_parts, read_state, shapes_of
from pipeline.model.components import ALL, is_adapter, is_trainable
from pipeline.model.config import UNSET, ModelConfig
from pipeline.model.initialization import Part
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.model.transformer import Transformer
from pipeline.parallel.shapes import parameter_shapes
from pipeline.schema import build
from pipeline.train.initial_settings import check_scale, gate_differences
from pipeline.train.retention import resolve
from pipeline.vocab.rows import RowSources

logger = logging.getLogger(__name__)

SIZES = ("dim", "ffn_dim", "heads", "head_dim", "encoder_layers", "decoder_layers")  # of a ModelConfig
OPTIONS = ("activation", "norm", "biases")  # of a ModelConfig; checkpoints leave them out where they are UNSET
EXPERT_SIZES = ("num_experts", "expert_dim", "shared_experts", "every")  # of its MoEConfig
# weights of experts and of a feed-forward network
DENSE = {"wi_EMH": "wi_MH", "wu_EMH": "wu_MH", "wo_EHM": "wo_HM", "bi_E1H": "bi_H", "bo_E1M": "bo_M"}


def initialize_from(
    path: Path,
    model: Transformer,
    vocabulary: str,
    parts: Mapping[str, Part] | None = None,
    row_sources: RowSources | None = None,
) -> None:
    """Copy every weight of equal name and shape. Routers that the checkpoint does not have keep their new weights.

    If the checkpoint has a dense feed-forward network in the place of experts, all of them become copies of it (sparse
    upcycling, arXiv:2212.05055). If the model's vocabulary was made of that of the checkpoint, each row of an embedding
    is a mean of old rows.

    vocabulary: sha256 of the vocabulary.
    parts: the parts of parameters that the model has (`build.parts_of`). Only these are read, but for embeddings whose
        rows are means.
    row_sources: of the model's vocabulary, if it was made of another one.

    Raises ValueError on another vocabulary, on other shapes, if the model or the checkpoint lacks a weight of the
    other, and if experts would count otherwise.
    """
    directory = resolve(path)
    trained_with = read_state(directory).get("vocabulary", vocabulary)
    if trained_with == vocabulary:
        row_sources = None
    elif row_sources is None or trained_with != row_sources.vocabulary:
        raise ValueError(f"train.initialize_from={path} was trained with another vocabulary; its embeddings do not fit")
    parts = parts or {}
    shapes = {name: parts[name].shape if name in parts else tuple(p.shape) for name, p in model.named_parameters()}
    rows = _embedding_rows(row_sources) if row_sources is not None else {}
    sources = _sources(
        str(path), directory, shapes, model.config, {name: len(sources) for name, sources in rows.items()}
    )
    with torch.no_grad():
        _copy(directory, model, {name: source for name, source in sources.items() if name not in rows}, parts)
        for name in rows.keys() & sources.keys():
            _fill_with_means(directory, name, model.get_parameter(name), rows[name], parts.get(name))
    logger.info("%d of %d weights from %s", len(sources), len(list(model.parameters())), directory)


def check_fit(
    name: str, directory: Path, config: ModelConfig, *, shared: bool, trainable: str | Collection[str] = ALL
) -> None:
    """Raise ValueError if a model of this configuration cannot start from a checkpoint; pieces of vocabularies aside.

    name: what the user wrote in train.initialize_from.
    shared: whether the model has one vocabulary for both sides.
    trainable: the parameters that train, for `is_trainable`. The others must be in the checkpoint.
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
    # the tables of gates by task have a row for each task, and the pairs are known only after the corpus was read
    sizes_of = {s.name: there.get(s.name, s.sizes) if s.name.endswith(".wt_TE") else s.sizes for s in shapes}
    sources = _sources(name, directory, sizes_of, config)
    for difference, trains in gate_differences(config, trained_config(directory), sources, trainable):
        if not trains:
            raise ValueError(
                f"train.initialize_from={name}: {difference}, where they are frozen; set the same gate, or train them"
            )
        logger.warning("warning: train.initialize_from=%s: %s; they must learn anew what to choose", name, difference)
    for shape in shapes:
        if shape.name not in sources and not is_trainable(shape.name, trainable):
            raise ValueError(
                f"train.initialize_from={name} does not have {shape.name}, which would keep its random weights because "
                "it is frozen; train all components first (without train.trainable and train.lora)"
            )


def check_tasks(name: str, config: ModelConfig) -> None:
    """Raise ValueError if gates choose by task here and in the checkpoint, and their tasks differ.

    name: what `train.initialize_from` is, a path.
    """
    trained = trained_config(resolve(Path(name)))
    for decoder in (False, True):
        here, there = (model.moe.gate_of(decoder=decoder) for model in (config, trained))
        if isinstance(here, TaskConfig) and isinstance(there, TaskConfig) and here.tasks != there.tasks:
            raise ValueError(
                f"train.initialize_from={name}: its gates tell {', '.join(there.tasks)} apart, and the {here.by} here "
                f"is one of {', '.join(here.tasks)}; take the same pairs in the same order, or another gate"
            )


def trained_config(directory: Path) -> ModelConfig:
    """Return the configuration of the model of a checkpoint."""
    return build(ModelConfig, read_state(directory)["model"])


def _embedding_rows(row_sources: RowSources) -> dict[str, list[list[int]]]:
    """Return, for each embedding by name, the old rows whose mean each of its rows is."""
    return {"source_embedding_VM": row_sources.source, "target_embedding_VM": row_sources.target}


def _fill_with_means(
    directory: Path, name: str, parameter: torch.Tensor, rows: list[list[int]], part: Part | None
) -> None:
    """Make each row of an embedding the mean of rows of the checkpoint's. part: the part that this process has."""
    old_VM = torch.empty(shapes_of(directory)[name])
    read_parts(directory, {name: old_VM}, {})
    first_V, first_M = part.starts if part is not None else (0, 0)
    num_V, num_M = parameter.shape
    chosen = rows[first_V : first_V + num_V]
    ids = torch.tensor([row for of_piece in chosen for row in of_piece])
    ends = torch.tensor([len(of_piece) for of_piece in chosen]).cumsum(0)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    new_VM = F.embedding_bag(ids, old_VM[:, first_M : first_M + num_M].contiguous(), starts, mode="mean")
    parameter.copy_(new_VM)


def _sources(
    path: str,
    directory: Path,
    shapes: Mapping[str, tuple[int, ...]],
    config: ModelConfig,
    num_rows: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Return the name of the checkpoint's weight that each weight becomes a copy of. Raises ValueError as its callers.

    shapes: of the model's parameters, uncut.
    num_rows: rows of the embeddings that get others than those of the checkpoint.
    """
    there = shapes_of(directory)
    there |= {name: (number, *there[name][1:]) for name, number in (num_rows or {}).items() if name in there}
    sources: dict[str, str] = {}
    problems: list[str] = []
    for name, shape in shapes.items():
        source = name if name in there else _dense(name)
        if source in there:
            sources[name] = source
            if there[source] != (shape if source == name or ".experts." not in name else _of_expert(name, shape)):
                problems.append(f"{name} is {list(shape)} here, {source} is {list(there[source])} there")
        elif not _fresh(name):
            problems.append(f"{name} is not there")
    problems += [f"{name} is not here" for name in there if name not in sources.values() and not _fresh(name)]
    if problems:
        remedies = [remedy for remedy in (_widths(config, there, sources), _sizes(config, directory)) if remedy]
        raise ValueError(
            f"train.initialize_from={path} does not fit the model: {'; '.join([*remedies, *problems][:3])}"
        )
    check_scale(path, config, trained_config(directory), sources)
    return sources


def _copy(directory: Path, model: Transformer, sources: Mapping[str, str], parts: Mapping[str, Part]) -> None:
    named = {name: parameter for name, parameter in model.named_parameters() if name in sources}
    into = {
        name: p if sources[name] == name or ".experts." not in name else p.new_empty(_of_expert(name, tuple(p.shape)))
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


def _of_expert(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one expert's weight or bias. shape: of all experts' parameter."""
    return shape[2:] if "_E1" in name else shape[1:]


def _fresh(name: str) -> bool:
    """Return true for a weight that decides about routes, or is an adapter's. The checkpoint need not have those."""
    return is_adapter(name) or ".feed_forward.router." in name or name.endswith(".feed_forward.conditional.wc_M")


def _widths(config: ModelConfig, there: Mapping[str, tuple[int, ...]], sources: Mapping[str, str]) -> str:
    """Return the remedy if experts cannot be copies of the dense feed-forward network, else an empty text."""
    expert_dim = config.moe.expert_dim
    if config.moe.shared_experts and any(name.endswith("experts.wi_EMH") and s != name for name, s in sources.items()):
        return (
            f"model.moe.shared_experts={config.moe.shared_experts} would be added to experts that are copies of its "
            "feed-forward networks; set model.moe.shared_experts=0"
        )
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
    if there:
        options = {name: there.get(name, UNSET[name]) for name in OPTIONS}
        sizes |= {name: value for name, value in options.items() if value != getattr(config, name)}
    if (moe := there.get("moe", {})).get("num_experts"):
        moe = {**UNSET, **moe}
        sizes |= {f"moe.{name}": moe[name] for name in EXPERT_SIZES if moe[name] != getattr(config.moe, name)}
    return f"it has {' '.join(f'model.{name}={value}' for name, value in sizes.items())}; set these" if sizes else ""
