"""From the cleaned rows of its pairs to the translations of one system: vocab -> encode -> train -> translate."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pipeline.batch.config import SUBWORDS
from pipeline.config import RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag import stages
from pipeline.dag.artifact import Artifact
from pipeline.dag.reuse import check_other_model, check_vocabulary_of
from pipeline.dag.store import Store
from pipeline.dag.system import EarlierRun, System, Trained, vocabulary_sizes
from pipeline.jobs.default_precision import default_precision
from pipeline.jobs.visible_devices import device_type
from pipeline.parallel.layout import layout_of
from pipeline.parallel.legality import check_vocabulary
from pipeline.tasks import side_by_side

logger = logging.getLogger(__name__)


def make_vocabulary(store: Store, cleaned: Mapping[LangPair, Artifact], system: System) -> Artifact:
    """Make the vocabulary of a system: its own, or that of a finished run, changed as the settings say."""
    if system.vocabulary is None or system.vocab.changed:
        return store.get(stages.vocab(system, cleaned))
    return system.vocabulary


def prepare(
    store: Store, cleaned: Mapping[LangPair, Artifact], system: System
) -> tuple[Artifact, dict[LangPair, Artifact]]:
    """Make the vocabulary of a system and the encoded rows of its pairs.

    Raises ValueError where the batches cannot have the mixture of sources that is configured, where the layout cannot
    cut the vocabulary, and where the model is to start from weights of another vocabulary.
    """
    vocabulary = make_vocabulary(store, cleaned, system)
    if system.train.initialize_from:
        check_vocabulary_of(Path(system.train.initialize_from), system.vocabulary or vocabulary)
        if system.model.moe.pairs:
            from pipeline.train.upcycling import check_tasks  # late, because it loads torch

            check_tasks(system.train.initialize_from, system.model)
    sizes = vocabulary_sizes(vocabulary)
    check_vocabulary(
        layout_of(system.layout, system.runtime),
        system.vocab,
        source_size=sizes["source_size"],
        target_size=sizes["target_size"],
    )
    if system.batch.augment.get(SUBWORDS):
        from pipeline.vocab.subwords import check_samples
        from pipeline.vocab.vocabulary import Vocabulary

        check_samples(Vocabulary.load(vocabulary.path))
    encodings = [stages.encode(system, pair, vocabulary, cleaned[pair]) for pair in system.pairs]
    data = system.runtime.data
    artifacts = side_by_side([partial(store.get, stage) for stage in encodings], at_once=data.stages_at_once)
    encoded = dict(zip(system.pairs, artifacts, strict=True))
    if system.batch.mixture.has_rules:
        from pipeline.batch.lengths import sources_of
        from pipeline.batch.proportions import check_mixture

        check_mixture(system.batch.mixture, {pair.name: sources_of(encoded[pair].path) for pair in system.pairs})
    return vocabulary, encoded


def train(
    store: Store, cleaned: Mapping[LangPair, Artifact], system: System
) -> tuple[Artifact, dict[LangPair, Artifact], Artifact]:
    """Train a system. Return its vocabulary, the encoded rows of its pairs, and the model."""
    vocabulary, encoded = prepare(store, cleaned, system)
    stage = stages.train(system, vocabulary, encoded)
    if store.trace(stage) is None:
        _warn_of_other_device(store, system, vocabulary, encoded)
    return vocabulary, encoded, store.get(stage)


def _warn_of_other_device(
    store: Store, system: System, vocabulary: Artifact, encoded: Mapping[LangPair, Artifact]
) -> None:
    """Log a warning where the system's training, which is about to begin, was begun on the other type of device."""
    here = device_type(system.runtime.device)
    other = "cpu" if here == "cuda" else "cuda"
    for precision in dict.fromkeys((system.train.precision, default_precision(other))):
        twin = replace(
            system,
            runtime=replace(system.runtime, device=other),
            train=replace(system.train, precision=precision),
        )
        if path := store.trace(stages.train(twin, vocabulary, encoded)):
            state = "is half done" if path.suffix else "is done"
            logger.warning(
                "warning: train %s begins anew on %s, because random draws depend on the type of device; with "
                "runtime.device=%s and train.precision=%s it %s, in %s",
                *(system.label, here, other, precision, state, path),
            )


def is_trained(store: Store, cleaned: Mapping[LangPair, Artifact], system: System) -> bool:
    """Return whether a system, whose rows are encoded, is trained already."""
    vocabulary, encoded = prepare(store, cleaned, system)
    return store.published(stages.train(system, vocabulary, encoded)) is not None


def train_and_translate(
    config: RunConfig,
    store: Store,
    cleaned: Mapping[LangPair, Artifact],
    system: System,
    ensemble: Sequence[EarlierRun] = (),
) -> Trained:
    """Train a system and translate the test sets of its pairs.

    ensemble: runs that translate together with it. Raises ValueError if one has the model that the training made.
    """
    vocabulary, _, model = train(store, cleaned, system)
    for member in ensemble:
        check_other_model(member, model)
    members = [member.model for member in ensemble]
    translation = stages.translate(
        {pair: cleaned[pair] for pair in system.pairs},
        vocabulary,
        model,
        decode=config.decode,
        runtime=system.runtime,
        label=system.label,
        slot=system.slot,
        ensemble=members,
    )
    return Trained(system=system, model=model, translations=store.get(translation), ensemble=members)


def translate_before(
    config: RunConfig, store: Store, cleaned: Mapping[LangPair, Artifact], initial: EarlierRun | None
) -> dict[LangPair, Artifact]:
    """Translate the test sets that the model of `initial` can translate. Return the translations by pair.

    The search is that of the run. Of which checkpoints the model is the mean, its own run has decided. A run that
    translates as an ensemble has no such translations, because what the others add is no gain of its training.
    """
    pairs = [pair for pair in cleaned if initial is not None and pair in initial.pairs]
    if initial is None or not pairs:
        return {}
    if config.decode.ensemble:
        logger.info(
            "train.initialize_from=%s is not compared with this run, which translates together with decode.ensemble=%s",
            *(initial.run, list(config.decode.ensemble)),
        )
        return {}
    own = initial.decode
    stage = stages.translate(
        {pair: cleaned[pair] for pair in pairs},
        initial.vocabulary,
        initial.model,
        decode=replace(config.decode, average=own.average, average_of=own.average_of),
        runtime=config.runtime,
        label=f"{initial.run}, before",
    )
    return dict.fromkeys(pairs, store.get(stage))
