"""The main job of `make train`, and the parts of it that `make data` and `make baselines` run alone."""

import json
import logging
import time
from functools import partial
from pathlib import Path

from pipeline.config import ROOT, RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag import stages
from pipeline.dag.artifact import Artifact
from pipeline.dag.baselines import Baselines, baselines, estimates, prepare_baselines
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.corpus import Corpus, train_rows
from pipeline.dag.reuse import check_tags, warn_of_bytes
from pipeline.dag.run_directory import lay_out, publish_run
from pipeline.dag.store import Listener, Store
from pipeline.dag.system import Origin, Trained, multilingual
from pipeline.dag.training import make_vocabulary, prepare, train_and_translate, translate_before
from pipeline.files import check_writable, write_atomically
from pipeline.jobs.hosts import check_launcher
from pipeline.tasks import end_workers, side_by_side

logger = logging.getLogger(__name__)


NO_ORIGIN = Origin()


def train_run(config: RunConfig, listener: Listener | None = None, origin: Origin = NO_ORIGIN) -> Path:
    """Run everything from the corpus to the report; its results are in the returned directory, `runs/<name>`.

    origin: what the main model takes from finished runs.
    """
    began = time.monotonic()
    check_launcher(config.runtime)
    store, corpus, cleaned = _cleaned(config, listener, origin)
    config = config.with_tasks(corpus.pairs)
    rows = train_rows(cleaned)
    moe = multilingual(config, corpus.pairs, origin)
    _, encoded = prepare(store, cleaned, moe)
    prepare_baselines(config, store, cleaned, rows)
    if listener is not None:
        listener.expect(**estimates(config, store, cleaned, rows))
    end_workers()  # training needs their memory
    trained = train_and_translate(config, store, cleaned, moe)
    before = translate_before(config, store, cleaned, origin.initial)
    routing = record_routing(config, store, trained)
    compared = baselines(config, store, cleaned, rows)
    systems = {"moe": [trained], **({"bilingual": compared.trained} if compared.trained else {})}
    scores = store.get(stages.score(config, corpus, cleaned, encoded, systems, before, compared.search))
    report = store.get(stages.report(config.name, scores, trained.model, routing))
    directory = ROOT / config.runtime.runs / config.name
    publish_run(report, directory, finish=lambda run: _summarise(store, run, time.monotonic() - began))
    _say_if_idle(store)
    return directory


def data_run(config: RunConfig, listener: Listener | None = None, origin: Origin = NO_ORIGIN) -> Path:
    """Run the stages before training; the page on the data is in the returned directory, `runs/<name>`.

    origin: as in `train_run`.
    """
    store, corpus, cleaned = _cleaned(config, listener, origin)
    config = config.with_tasks(corpus.pairs)
    _, encoded = prepare(store, cleaned, multilingual(config, corpus.pairs, origin))
    page = store.get(stages.data_page(config, corpus, cleaned, encoded))
    directory = lay_out(page, ROOT / config.runtime.runs / config.name)
    _say_if_idle(store)
    logger.info("data: %s", shown(directory / "data.html"))
    if config.corpus.keep_removed:
        from pipeline.corpus.cleaning.clean import REMOVED

        for pair, artifact in cleaned.items():
            logger.info("removed rows of %s: %s", pair.name, shown(artifact.path / REMOVED))
    return directory


def baselines_run(config: RunConfig, listener: Listener | None = None) -> tuple[Baselines, dict[LangPair, int]]:
    """Train and translate the bilingual models of a run; returns them, and the training rows of their pairs."""
    if not config.baselines.tiers:
        raise ValueError("baselines.tiers is empty, so there is nothing to train; choose baselines=tiered")
    check_launcher(config.runtime)
    store, _, cleaned = _cleaned(config, listener, NO_ORIGIN)
    rows = train_rows(cleaned)
    prepare_baselines(config, store, cleaned, rows)
    if listener is not None:
        listener.expect(**estimates(config, store, cleaned, rows))
    end_workers()
    trained = baselines(config, store, cleaned, rows)
    _say_if_idle(store)
    return trained, rows


def record_routing(config: RunConfig, store: Store, trained: Trained) -> Artifact | None:
    """Record which experts the development sets choose; None for a dense model."""
    if not trained.system.model.moe_layers():
        return None
    inputs, label = store.inputs(trained.model), trained.system.label
    stage = stages.routing(trained.model, inputs, decode=config.decode, runtime=config.runtime, label=label)
    return store.get(stage)


def _cleaned(
    config: RunConfig, listener: Listener | None, origin: Origin
) -> tuple[Store, Corpus, dict[LangPair, Artifact]]:
    """Run the stages up to `clean` for all pairs. Raises ValueError where the vocabulary of `origin` lacks a tag."""
    store, data = Store(ROOT / config.runtime.artifacts, listener), config.runtime.data
    check_writable(ROOT / config.runtime.runs, "runtime.runs")
    corpus = prepare_corpus(config.corpus, config.pairs, store, data)
    if listener is not None:
        listener.describe(recipe=config.recipe, pairs=[pair.name for pair in corpus.pairs])
    config.with_tasks(corpus.pairs)  # its faults show before the hours of cleaning
    if config.batch.mixture.has_rules:  # their faults show before the hours of cleaning
        from pipeline.batch.proportions import check_mixture

        check_mixture(config.batch.mixture, {pair.name: corpus.sources_of(pair) for pair in corpus.pairs})
    if origin.vocabulary is not None:
        check_tags(config.vocab, origin.vocabulary, corpus)
    actions = [partial(clean, config.corpus, store, corpus, pair, data) for pair in corpus.pairs]
    cleaned = side_by_side(actions, at_once=data.stages_at_once)
    by_pair = dict(zip(corpus.pairs, cleaned, strict=True))
    if origin.vocabulary is not None:
        vocabulary = make_vocabulary(store, by_pair, multilingual(config, corpus.pairs, origin))
        warn_of_bytes(config.vocab.from_run, vocabulary, by_pair)
    return store, corpus, by_pair


def _summarise(store: Store, directory: Path, seconds: float) -> None:
    """Write summary.md into the run's directory. A command that made nothing keeps the time of the one before it."""
    from eval.report.markdown_summary import COMMAND, write_summary

    if store.ran:
        record = {"seconds": round(seconds, 1), "made": len(store.ran), "earlier": len(store.earlier)}
        write_atomically(directory / COMMAND, json.dumps(record))
    write_summary(directory)


def _say_if_idle(store: Store) -> None:
    if not store.ran:
        logger.info("nothing to do: all %d stages are up to date", len(store.reused))


def shown(path: Path) -> str:
    """Return a path as a user would type it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
