"""Learned cleaning, after `clean`: the rows of a pair are sorted by a score, and the worst share is removed.

By two small models: half -> vocab -> encode -> train -> cross_entropy, for each direction and half, then select. The
rows of each half are scored by the models that were trained on the other half.
By files of others: scores (`score_files.py`), which is read before the cleaning, then select.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.mixture_config import MixtureConfig
from pipeline.config import RunConfig
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.learned_config import DUAL, LOW_SCORE, DualCleaning, Limits, ScoreFiles
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import train_rows
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.dag.system import LEARNED, System, alone
from pipeline.dag.training import prepare, train
from pipeline.decode.job.jobs import NATS, CrossEntropyJob
from pipeline.jobs.default_precision import default_precision
from pipeline.jobs.hosts import launch_job
from pipeline.jobs.launch import stop_all
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.tasks import end_workers, side_by_side
from pipeline.train.config import TrainConfig
from pipeline.vocab.config import VocabConfig

HALVES = (0, 1)
FEW_ROWS = 2000  # training rows below which a warning says that the models learn little
_SPLIT = "test"  # of a half: the rows that its models score

logger = logging.getLogger(__name__)


def without_worst(
    config: RunConfig, store: Store, cleaned: Mapping[LangPair, Artifact], scores: Mapping[LangPair, Artifact]
) -> dict[LangPair, Artifact]:
    """Return the cleaned rows of all pairs without the worst ones, which stay where the configuration says nothing.

    scores: those that `check_learned` returned.
    """
    settings = config.corpus.learned
    if settings is None:
        return dict(cleaned)
    keep_removed = config.corpus.keep_removed
    if isinstance(settings, ScoreFiles):
        chosen = {pair: select_by_file(pair, cleaned[pair], scores[pair], settings, keep_removed) for pair in scores}
    else:
        pairs = [pair for pair in cleaned if settings.share(pair.name)]
        nats = cross_entropies(settings, config.runtime, store, {pair: cleaned[pair] for pair in pairs})
        chosen = {pair: select(pair, cleaned[pair], nats[pair], settings, keep_removed) for pair in pairs}
    actions = [partial(store.get, stage) for stage in chosen.values()]
    selected = side_by_side(actions, at_once=config.runtime.data.stages_at_once)
    return {**cleaned, **dict(zip(chosen, selected, strict=True))}


def cross_entropies(
    settings: DualCleaning, runtime: RuntimeConfig, store: Store, cleaned: Mapping[LangPair, Artifact]
) -> dict[LangPair, list[Artifact]]:
    """Train the small models and score all rows, `runtime.parallel_baselines` models at a time.

    Returns four artifacts of each pair: forward by the model of the first and of the second half, then backward.
    """
    rows = train_rows(cleaned)
    for pair in cleaned:
        if rows[pair] < FEW_ROWS:
            logger.warning("pair %s: the small models of corpus.learned learn little of %d rows", pair, rows[pair])
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(runtime.parallel_baselines):
        slots.put(slot)

    def write(pair: LangPair, direction: LangPair, half: int) -> Artifact:
        system = small_system(direction, half, settings, runtime)
        written_half = store.get(half_of(cleaned[pair], system, half, settings))
        try:
            prepare(store, {direction: written_half}, system)
        except ValueError as error:
            raise ValueError(
                f"{system.label}, a small model of corpus.learned: its vocabularies follow corpus.learned.vocab_size="
                f"{settings.vocab_size} alone; set that to what this asks of vocab: {error}"
            ) from error
        return written_half

    def score(direction: LangPair, half: int, written_half: Artifact) -> Artifact:
        slot = slots.get()
        try:
            system = replace(small_system(direction, half, settings, runtime), slot=slot)
            try:
                vocabulary, encoded, model = train(store, {direction: written_half}, system)
            except ValueError as error:
                raise ValueError(
                    f"{system.label}, a small model of corpus.learned (dim={settings.dim}): {error}"
                ) from error
            return store.get(cross_entropy(system, vocabulary, encoded[direction], model))
        finally:
            slots.put(slot)

    jobs = [
        (pair, direction, half)
        for pair in cleaned
        for direction in (pair, LangPair(pair.tgt, pair.src))
        for half in HALVES
    ]
    writing = [partial(write, *job) for job in jobs]
    halves = side_by_side(writing, at_once=runtime.data.stages_at_once)
    end_workers()  # training needs their memory
    scoring = [partial(score, *job[1:], written_half) for job, written_half in zip(jobs, halves, strict=True)]
    artifacts = side_by_side(scoring, at_once=runtime.parallel_baselines, stop=stop_all)
    by_pair: dict[LangPair, list[Artifact]] = {pair: [] for pair in cleaned}
    for (pair, _, _), artifact in zip(jobs, artifacts, strict=True):
        by_pair[pair].append(artifact)
    return by_pair


def small_system(direction: LangPair, half: int, settings: DualCleaning, runtime: RuntimeConfig) -> System:
    """Return the small dense model of a direction and a half. Its settings do not follow those of the main model."""
    return System(
        label=f"{LEARNED} {direction.name} {half + 1}",
        pairs=[direction],
        vocab=VocabConfig(
            shared=False, source_size=settings.vocab_size, target_size=settings.vocab_size, seed=settings.seed
        ),
        batch=BatchConfig(
            shapes=[GroupShape(rows=16, source=96, target=0), GroupShape(rows=8, source=192, target=192)],
            groups_per_step=1,
            mixture=MixtureConfig(),
        ),
        model=ModelConfig(
            dim=settings.dim,
            ffn_dim=settings.ffn_dim,
            heads=settings.heads,
            encoder_layers=settings.layers,
            decoder_layers=settings.layers,
            dropout=settings.dropout,
        ),
        train=TrainConfig(
            max_steps=0,
            max_tokens=settings.max_tokens,
            learning_rate=3e-3,
            warmup_steps=150,
            weight_decay=0.01,
            validate_every=100,
            precision=default_precision(runtime.device),
            seed=settings.seed,
        ),
        runtime=alone(runtime),
        layout={},
    )


def half_of(cleaned: Artifact, system: System, half: int, settings: DualCleaning) -> Stage:
    """Declare the rows on which a small model is trained, and those of the other half, which it scores."""
    (direction,) = system.pairs
    drawn = {"rows": settings.rows, "trusted": sorted(settings.trusted), "seed": settings.seed}
    return Stage(
        name="half",
        version=1,
        config={"pair": direction.name, "half": half, **drawn},
        inputs={"cleaned": cleaned},
        run=partial(_write_half, cleaned, direction, half, settings),
        label=system.label,
    )


def cross_entropy(system: System, vocabulary: Artifact, encoded: Artifact, model: Artifact) -> Stage:
    """Declare the cross-entropies of the rows that a small model scores, in nats per token."""
    return Stage(
        name="cross_entropy",
        version=1,
        config={"split": _SPLIT},
        inputs={"vocabulary": vocabulary, "encoded": encoded, "model": model},
        run=partial(_score, system, vocabulary, encoded, model),
        label=system.label,
        resumable=True,
    )


def select(
    pair: LangPair, cleaned: Artifact, nats: Sequence[Artifact], settings: DualCleaning, keep_removed: bool
) -> Stage:
    """Declare the rows of a pair without the worst ones by dual cross-entropy. nats: as of `cross_entropies`."""
    limits = Limits(share=settings.share(pair.name))
    names = ("forward 1", "forward 2", "backward 1", "backward 2")
    return Stage(
        name="select",
        version=2,
        config={"kind": settings.kind, "seed": settings.seed, **asdict(limits), "keep_removed": keep_removed},
        inputs={"cleaned": cleaned, **dict(zip(names, nats, strict=True))},
        run=partial(_select, cleaned, nats, settings.seed, limits, keep_removed),
        label=pair.name,
    )


def select_by_file(
    pair: LangPair, cleaned: Artifact, scores: Artifact, settings: ScoreFiles, keep_removed: bool
) -> Stage:
    """Declare the rows of a pair without the worst ones by the scores of a file."""
    limits = Limits(share=settings.share(pair.name), min_score=settings.min_score)
    return Stage(
        name="select",
        version=1,
        config={"kind": settings.kind, **asdict(limits), "keep_removed": keep_removed},
        inputs={"cleaned": cleaned, "scores": scores},
        run=partial(_select_by_file, cleaned, scores, limits, keep_removed),
        label=pair.name,
    )


def _write_half(cleaned: Artifact, direction: LangPair, half: int, settings: DualCleaning, out: Path) -> None:
    from pipeline.corpus.cleaning.halves import write_half

    write_half(
        cleaned.path,
        direction,
        half=half,
        most=settings.rows,
        trusted=settings.trusted,
        seed=settings.seed,
        out=out,
    )


def _score(system: System, vocabulary: Artifact, encoded: Artifact, model: Artifact, out: Path) -> None:
    job = CrossEntropyJob(
        title=f"score {system.label}",
        slot=system.slot,
        encoded=str(encoded.path),
        split=_SPLIT,
        vocabulary=str(vocabulary.path),
        checkpoints=str(model.path / "checkpoints"),
        out=str(out),
        runtime=system.runtime,
    )
    launch_job(
        "pipeline.decode.job.cross_entropy",
        asdict(job),
        directory=out / "log",
        runtime=job.runtime,
        title=job.title,
        slot=job.slot,
    )


def _select(
    cleaned: Artifact, nats: Sequence[Artifact], seed: int, limits: Limits, keep_removed: bool, out: Path
) -> None:
    import numpy as np

    from pipeline.corpus.cleaning.halves import second_half
    from pipeline.corpus.cleaning.worst import dual_score, places, remove_worst

    is_second = second_half(funnel(cleaned.path)["train"]["kept"], seed)
    halves = np.ones(len(is_second))
    halves[is_second] = 2
    parts = {"half": halves}
    for number, name in enumerate(("forward", "backward")):
        of_second, of_first = (np.load(artifact.path / NATS) for artifact in nats[2 * number : 2 * number + 2])
        parts[name] = np.empty(len(is_second))
        parts[name][is_second], parts[name][~is_second] = of_second, of_first
    parts["dual"] = dual_score(parts["forward"], parts["backward"])
    scores = places(parts["dual"], is_second)  # models with other vocabularies give other scores to equal rows
    remove_worst(cleaned.path, scores, parts, limits, rule=DUAL, keep_removed=keep_removed, out=out)


def _select_by_file(cleaned: Artifact, scores: Artifact, limits: Limits, keep_removed: bool, out: Path) -> None:
    from pipeline.corpus.cleaning.score_file import scores_of
    from pipeline.corpus.cleaning.worst import remove_worst

    values = scores_of(cleaned.path, scores.path)
    remove_worst(cleaned.path, values, {}, limits, rule=LOW_SCORE, keep_removed=keep_removed, out=out)
