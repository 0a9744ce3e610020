"""A system: one model to train and score, the multilingual one or a bilingual baseline."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.baseline_config import BaselineTier
from pipeline.batch.config import BatchConfig
from pipeline.config import RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.earlier_runs import MEMBERS
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.parallel.layout import Table
from pipeline.train.config import TrainConfig
from pipeline.vocab.config import VocabConfig

LEARNED = "dual"  # first word of the labels of small models that score rows for cleaning


@dataclass(frozen=True, kw_only=True)
class System:
    """One model, the pairs that it translates and its settings.

    slot: its number among the systems that are made at the same time: the line of its progress bar, and its device.
    vocabulary: that of a finished run, None where the system trains its own.
    """

    label: str
    pairs: Sequence[LangPair]
    vocab: VocabConfig
    batch: BatchConfig
    model: ModelConfig
    train: TrainConfig
    runtime: RuntimeConfig
    layout: Table
    slot: int = 0
    vocabulary: Artifact | None = None


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """A finished run whose weights the main model starts from, or that translates together with it.

    run: its name.
    pairs: those that it translates.
    decode: the settings by which it translated its test sets.
    """

    run: str
    pairs: Sequence[LangPair]
    vocabulary: Artifact
    model: Artifact
    decode: DecodeConfig


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The things that the main model of a run takes from finished runs.

    vocabulary: None where it trains its own.
    checkpoint: the one whose weights it starts from, None where it starts from random ones.
    initial: the run of the checkpoint, None where a path names it.
    ensemble: the runs of `decode.ensemble`.
    store: keeps `make remove` from deleting them as long as this object lives; None where nothing is taken.
    """

    vocabulary: Artifact | None = None
    checkpoint: Path | None = None
    initial: EarlierRun | None = None
    ensemble: Sequence[EarlierRun] = ()
    store: Store | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A system, its trained model and its translations of the test sets.

    ensemble: models that translated together with it.
    """

    system: System
    model: Artifact
    translations: Artifact
    ensemble: Sequence[Artifact] = ()


def multilingual(config: RunConfig, pairs: Sequence[LangPair], origin: Origin) -> System:
    """Return the main model of a run, for all pairs."""
    assert bool(config.vocab.from_run) == (origin.vocabulary is not None)
    assert bool(config.train.initialize_from) == (origin.checkpoint is not None)
    return System(
        label="moe",
        pairs=pairs,
        vocab=config.vocab,
        batch=config.batch,
        model=config.model,
        train=replace(config.train, initialize_from=str(origin.checkpoint or "")),
        runtime=config.runtime,
        layout=config.layout,
        vocabulary=origin.vocabulary,
    )


def alone(runtime: RuntimeConfig) -> RuntimeConfig:
    """Return the runtime of a bilingual model: one process on this machine."""
    return replace(runtime, processes=1, ep=1, mp=1, launcher="local", decode_experts="replicated")


def bilingual(pair: LangPair, tier: BaselineTier, runtime: RuntimeConfig) -> System:
    """Return the dense model of one pair, which one process of this machine trains."""
    return System(
        label=f"bilingual {pair.name}",
        pairs=[pair],
        vocab=tier.vocab,
        batch=tier.batch,
        model=tier.model,
        train=tier.train,
        runtime=alone(runtime),
        layout={},
    )


def translating(vocabulary: Artifact, model: Artifact, ensemble: Sequence[Artifact]) -> dict[str, Artifact]:
    """Return what translates as inputs of a stage. ensemble: models that translate together with `model`."""
    members = {f"ensemble {number}": member for number, member in enumerate(ensemble, start=1)}
    return {"vocabulary": vocabulary, "model": model, **members}


def members_record(decode: DecodeConfig, ensemble: Sequence[Artifact]) -> dict[str, dict[str, str]]:
    """Return the part of run.json that says which models had the names of `decode.ensemble`; empty without them."""
    if not ensemble:
        return {}
    models = (f"{model.stage}/{model.key}" for model in ensemble)
    return {MEMBERS: dict(zip(decode.ensemble, models, strict=True))}


def vocabulary_sizes(vocabulary: Artifact) -> dict[str, Any]:
    """Return the sizes of a vocabulary as it was trained: `source_size`, `target_size`, `shared`."""
    sizes: dict[str, Any] = json.loads((vocabulary.path / "vocab.json").read_text(encoding="utf-8"))
    return sizes
