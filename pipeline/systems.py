"""One system from cleaned text to translations: vocab -> encode -> train -> translate.

The same for the multilingual model and for a bilingual baseline.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.baseline_config import BaselineTier
from pipeline.batch.config import BatchConfig
from pipeline.checked_json import CHECKSUM
from pipeline.config import RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job import TranslateJob
from pipeline.decode.pruning import Pruning
from pipeline.jobs.hosts import launch_job
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.parallel.layout import Table, layout_of
from pipeline.parallel.legality import check_vocabulary
from pipeline.parallel.shapes import checkpoint_bytes, parameter_shapes
from pipeline.stage import Artifact, Stage, Store, check_free
from pipeline.tasks import shard_runner, side_by_side
from pipeline.train import retention
from pipeline.train.config import TrainConfig
from pipeline.train.job import TrainJob
from pipeline.vocab.config import VocabConfig

EXPERTS = "experts.json"  # beside the translations of a pruned model
CLOCKS = ("train_seconds", "matmul_peak", CHECKSUM)  # in the state of a checkpoint; the checksum is of them too
NO_RESULT = ("log_every", "checkpoints")  # settings of training that do not change its result


@dataclass(frozen=True, kw_only=True)
class System:
    """One model to train and score: on which pairs, and how. slot: line of the terminal for its progress."""

    label: str
    pairs: Sequence[LangPair]
    vocab: VocabConfig
    batch: BatchConfig
    model: ModelConfig
    train: TrainConfig
    runtime: RuntimeConfig
    layout: Table
    slot: int = 0


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What became of a system."""

    system: System
    model: Artifact
    translations: Artifact


def bilingual(pair: LangPair, tier: BaselineTier, runtime: RuntimeConfig) -> System:
    """The dense model of one pair, on one process of this machine."""
    return System(
        label=f"bilingual {pair.name}",
        pairs=[pair],
        vocab=tier.vocab,
        batch=tier.batch,
        model=tier.model,
        train=tier.train,
        runtime=replace(runtime, processes=1, ep=1, mp=1, launcher="local", decode_experts="replicated"),
        layout={},
    )


def vocab(store: Store, cleaned: Mapping[LangPair, Artifact], system: System) -> Artifact:
    inputs = {pair.name: cleaned[pair] for pair in system.pairs}

    def run(out: Path) -> None:
        from pipeline.vocab.tokenizer import train_vocabulary

        train_vocabulary(system.vocab, {pair: cleaned[pair].path for pair in system.pairs}, out)

    stage = Stage(name="vocab", version=1, config=asdict(system.vocab), inputs=inputs, run=run, label=system.label)
    return store.get(stage)


def encode(store: Store, vocabulary: Artifact, cleaned: Artifact, pair: LangPair, system: System) -> Artifact:
    limits: Any = {"max_source_tokens": system.batch.max_source, "max_target_tokens": system.batch.max_target}
    data = system.runtime.data

    def run(out: Path) -> None:
        from pipeline.corpus.funnel import funnel
        from pipeline.vocab.encode import encode

        rows = funnel(cleaned.path)["train"]["kept"]
        encode(
            vocabulary.path,
            cleaned.path,
            pair,
            **limits,
            out=out,
            shard_rows=data.shard_rows,
            threads=1,
            run=shard_runner(data, rows, out / "log", f"encode {pair.name}"),
        )

    inputs = {"vocabulary": vocabulary, "bitext": cleaned}
    slice_ = {"pair": pair.name, **limits}
    stage = Stage(name="encode", version=2, config=slice_, inputs=inputs, run=run, label=pair.name, resumable=True)
    return store.get(stage)


def prepare(
    store: Store, cleaned: Mapping[LangPair, Artifact], system: System
) -> tuple[Artifact, dict[LangPair, Artifact]]:
    """vocab -> encode: what a system is trained on. Raises ValueError on a mixture that cannot be drawn from it, and
    on a vocabulary that cannot be cut."""
    vocabulary = vocab(store, cleaned, system)
    sizes = _sizes(vocabulary)
    check_vocabulary(
        layout_of(system.layout, system.runtime),
        system.vocab,
        source_size=sizes["source_size"],
        target_size=sizes["target_size"],
    )
    actions = [partial(encode, store, vocabulary, cleaned[pair], pair, system) for pair in system.pairs]
    found = side_by_side(actions, at_once=system.runtime.data.stages_at_once)
    encoded = dict(zip(system.pairs, found, strict=True))
    if system.batch.mixture.has_rules:
        from pipeline.batch.lengths import sources_of
        from pipeline.batch.proportions import check_mixture

        check_mixture(system.batch.mixture, {pair.name: sources_of(encoded[pair].path) for pair in system.pairs})
    return vocabulary, encoded


def train_and_translate(
    config: RunConfig, store: Store, cleaned: Mapping[LangPair, Artifact], system: System
) -> Trained:
    """vocab -> encode -> train -> translate for one system."""
    vocabulary, encoded = prepare(store, cleaned, system)
    model = train(store, vocabulary, encoded, system)
    stage = translation(
        decode=config.decode,
        vocabulary=vocabulary,
        cleaned={pair: cleaned[pair] for pair in system.pairs},
        model=model,
        runtime=system.runtime,
        label=system.label,
        slot=system.slot,
    )
    return Trained(system=system, model=model, translations=store.get(stage))


def train(store: Store, vocabulary: Artifact, encoded: Mapping[LangPair, Artifact], system: System) -> Artifact:
    def run(out: Path) -> None:
        sizes = _sizes(vocabulary)
        shapes = parameter_shapes(
            system.model,
            source_vocabulary=sizes["source_size"],
            target_vocabulary=sizes["target_size"],
            shared=sizes["shared"],
        )
        checkpoints = system.train.checkpoints.most(system.train.max_steps)
        size = checkpoint_bytes(shapes, optimizer=system.train.optimizer, ema=bool(system.train.ema))
        check_free(out, checkpoints * size, f"train {system.label}")
        job = TrainJob(
            title=f"train {system.label}",
            slot=system.slot,
            pairs=[pair.name for pair in system.pairs],
            encoded=[str(encoded[pair].path) for pair in system.pairs],
            vocabulary=str(vocabulary.path),
            out=str(out),
            model=system.model,
            batch=system.batch,
            train=system.train,
            runtime=system.runtime,
            layout=dict(system.layout),
        )
        _launch("pipeline.train", job, out)

    settings = {key: value for key, value in asdict(system.train).items() if key not in NO_RESULT}
    if system.train.initialize_from:  # not where it lies, but what it is
        settings["initialize_from"] = retention.content(retention.resolve(Path(system.train.initialize_from)))
    slice_ = {
        "pairs": [pair.name for pair in system.pairs],
        "model": asdict(system.model),
        "batch": asdict(system.batch),
        "train": settings,
    }
    inputs = {"vocabulary": vocabulary, **{pair.name: artifact for pair, artifact in encoded.items()}}
    stage = Stage(
        name="train",
        version=2,
        config=slice_,
        inputs=inputs,
        run=run,
        label=system.label,
        resumable=True,
        clocks=CLOCKS,
    )
    return store.get(stage)


def translation(
    *,
    decode: DecodeConfig,
    vocabulary: Artifact,
    cleaned: Mapping[LangPair, Artifact],
    model: Artifact,
    runtime: RuntimeConfig,
    label: str,
    slot: int = 0,
    pruning: Pruning | None = None,
) -> Stage:
    """Translates the test sets of `cleaned`, by the whole model or by what a pruning leaves of it."""
    pairs = list(cleaned)

    def run(out: Path) -> None:
        from pipeline.decode.drops import say_drops
        from pipeline.decode.merge import merge_translations, translated_rows

        if pruning is not None:
            (out / EXPERTS).write_text(pruning.to_json(), encoding="utf-8")
        job = TranslateJob(
            title=f"translate {label}",
            slot=slot,
            pairs=[pair.name for pair in pairs],
            targets=[pair.tgt for pair in pairs],
            bitexts=[str(cleaned[pair].path) for pair in pairs],
            vocabulary=str(vocabulary.path),
            checkpoints=str(model.path / "checkpoints"),
            out=str(out),
            done=[translated_rows(out, pair.name) for pair in pairs],
            decode=decode,
            runtime=runtime,
            experts=str(out / EXPERTS) if pruning is not None else "",
        )
        _launch("pipeline.decode", job, out)
        say_drops(out / "log", job.title)
        for pair in pairs:
            merge_translations(out, pair.name, cleaned[pair].path)

    slice_ = {**decode.decisive(), **({"experts": pruning.experts} if pruning is not None else {})}
    inputs = {"vocabulary": vocabulary, "model": model, **{pair.name: cleaned[pair] for pair in pairs}}
    return Stage(name="translate", version=2, config=slice_, inputs=inputs, run=run, label=label, resumable=True)


def _sizes(vocabulary: Artifact) -> dict[str, Any]:
    """Of the vocabulary as it was trained: source_size, target_size, shared."""
    sizes: dict[str, Any] = json.loads((vocabulary.path / "vocab.json").read_text(encoding="utf-8"))
    return sizes


def _launch(module: str, job: TrainJob | TranslateJob, out: Path) -> None:
    launch_job(module, asdict(job), directory=out / "log", runtime=job.runtime, title=job.title)
