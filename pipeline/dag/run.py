"""The main job of `make train`, and the parts of it that `make data` and `make baselines` run alone."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from eval.records.scores import BASELINE
from pipeline.config import ROOT, RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag import stages
from pipeline.dag.artifact import Artifact
from pipeline.dag.baselines import Baselines, baselines, estimates, prepare_baselines
from pipeline.dag.challenge import is_challenge, own_challenge
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.corpus import Corpus, train_rows
from pipeline.dag.learned_checks import check_learned
from pipeline.dag.learned_cleaning import without_worst
from pipeline.dag.reuse import check_member_vocabulary, check_members, check_tags, warn_of_bytes
from pipeline.dag.run_directory import lay_out, publish_run
from pipeline.dag.run_record import ledger
from pipeline.dag.store import Listener, Store
from pipeline.dag.system import Origin, Trained, multilingual
from pipeline.dag.test_rows import PairRows, further_rows
from pipeline.dag.test_sets import score_tests, translate_tests
from pipeline.dag.training import make_vocabulary, prepare, train_and_translate, translate_before
from pipeline.files import check_writable, write_atomically
from pipeline.jobs.hosts import check_launcher, processes_per_host
from pipeline.parallel.layout import layout_of
from pipeline.parallel.legality import node_cautions
from pipeline.tasks import end_workers, side_by_side

logger = logging.getLogger(__name__)


NO_ORIGIN = Origin()


@dataclass(frozen=True, kw_only=True)
class BaselinesRun:
    """The bilingual models of a run, trained without the multilingual one.

    rows: training rows of their pairs.
    tests: translations of the further test sets of `score.test_sets` but challenge sets, by test set and pair.
    """

    models: Baselines
    rows: Mapping[LangPair, int]
    tests: Mapping[str, Mapping[LangPair, Artifact]] = field(default_factory=dict)


def train_run(config: RunConfig, listener: Listener | None = None, origin: Origin = NO_ORIGIN) -> Path:
    """Run everything from the corpus to the report; its results are in the returned directory, `runs/<name>`.

    origin: what the main model takes from finished runs.
    """
    began = time.monotonic()
    check_launcher(config.runtime)
    node = processes_per_host(config.runtime)
    for caution in node_cautions(layout_of(config.layout, config.runtime), model=config.model, node=node):
        logger.warning("warning: %s", caution)
    store, corpus = _prepared(config, listener, origin)
    test_sets = further_rows(config, corpus.pairs, store)  # their faults show before the hours of cleaning
    cleaned = _cleaned(config, store, corpus, origin)
    config = config.with_tasks(corpus.pairs)
    rows = train_rows(cleaned)
    moe = multilingual(config, corpus.pairs, origin)
    vocabulary, encoded = prepare(store, cleaned, moe)
    for member in origin.ensemble:
        check_member_vocabulary(member, config.name, vocabulary)
    prepare_baselines(config, store, cleaned, rows)
    if listener is not None:
        listener.expect(**estimates(config, store, cleaned, rows))
    end_workers()  # training needs their memory
    trained = train_and_translate(config, store, cleaned, moe, origin.ensemble)
    before = translate_before(config, store, cleaned, origin.initial)
    routing = record_routing(config, store, trained)
    compared = baselines(config, store, cleaned, rows)
    systems = {"moe": [trained], **({"bilingual": compared.trained} if compared.trained else {})}
    scores = store.get(stages.score(config, corpus, cleaned, encoded, systems, before, compared.search))
    test_sets |= own_challenge(config, cleaned, store)
    tests = score_tests(config, store, scores, test_sets, [member.model for member in origin.ensemble])
    quoted = [pair.name for pair in corpus.pairs if config.report.show and corpus.may_show(pair, "dev")]
    report = store.get(stages.report(config.name, scores, trained.model, routing, quoted, tests))
    directory = ROOT / config.runtime.runs / config.name
    publish_run(report, directory, finish=lambda run: _summarise(store, run, time.monotonic() - began))
    _say_if_idle(store)
    return directory


def data_run(config: RunConfig, listener: Listener | None = None, origin: Origin = NO_ORIGIN) -> Path:
    """Run the stages before training; the page on the data is in the returned directory, `runs/<name>`.

    origin: as in `train_run`.
    """
    store, corpus = _prepared(config, listener, origin)
    cleaned = _cleaned(config, store, corpus, origin)
    config = config.with_tasks(corpus.pairs)
    _, encoded = prepare(store, cleaned, multilingual(config, corpus.pairs, origin))
    page = store.get(stages.data_page(config, corpus, cleaned, encoded))
    directory = lay_out(page, ROOT / config.runtime.runs / config.name)
    _say_if_idle(store)
    logger.info("data: %s", shown(directory / "data.html"))
    if config.corpus.learned is not None:
        from pipeline.corpus.cleaning.worst import SCORES

        for pair, artifact in cleaned.items():
            if (artifact.path / SCORES).exists():
                logger.info("scores of %s: %s", pair.name, shown(artifact.path / SCORES))
    if config.corpus.keep_removed:
        from pipeline.corpus.cleaning.clean import REMOVED

        for pair, artifact in cleaned.items():
            logger.info("removed rows of %s: %s", pair.name, shown(artifact.path / REMOVED))
    return directory


def baselines_run(config: RunConfig, listener: Listener | None = None) -> BaselinesRun:
    """Train the bilingual models of a run, and translate all its test sets but challenge sets."""
    if not config.baselines.tiers:
        raise ValueError("baselines.tiers is empty, so there is nothing to train; choose baselines=tiered")
    check_launcher(config.runtime)
    store, corpus = _prepared(config, listener, NO_ORIGIN)
    further = further_rows(config, corpus.pairs, store)
    cleaned = _cleaned(config, store, corpus, NO_ORIGIN)
    rows = train_rows(cleaned)
    prepare_baselines(config, store, cleaned, rows)
    if listener is not None:
        listener.expect(**estimates(config, store, cleaned, rows))
    end_workers()
    models = baselines(config, store, cleaned, rows)
    tests = _translate_further(config, store, models, further)
    _say_if_idle(store)
    return BaselinesRun(models=models, rows=rows, tests=tests)


def _translate_further(
    config: RunConfig, store: Store, models: Baselines, further: Mapping[str, PairRows]
) -> dict[str, Mapping[LangPair, Artifact]]:
    """Translate further test sets but challenge sets by bilingual models. Returns translations by test set and pair."""
    test_sets = {name: rows for name, rows in further.items() if not is_challenge(rows)}
    if not test_sets:
        return {}
    record = {"name": config.name, "systems": {BASELINE: [ledger(model) for model in models.trained]}}
    translated = partial(translate_tests, store, record, decode=config.decode, runtime=config.runtime)
    return {name: translated(rows)[BASELINE] for name, rows in test_sets.items()}


def record_routing(config: RunConfig, store: Store, trained: Trained) -> Artifact | None:
    """Record which experts the development sets choose; None for a dense model."""
    if not trained.system.model.moe_layers():
        return None
    inputs, label = store.inputs(trained.model), trained.system.label
    stage = stages.routing(trained.model, inputs, decode=config.decode, runtime=config.runtime, label=label)
    return store.get(stage)


def _prepared(config: RunConfig, listener: Listener | None, origin: Origin) -> tuple[Store, Corpus]:
    """Run the stages before `clean`, and check the models that are to translate with the main one."""
    store = Store(ROOT / config.runtime.artifacts, listener)
    check_writable(ROOT / config.runtime.runs, "runtime.runs")
    corpus = prepare_corpus(config.corpus, config.pairs, store, config.runtime.data)
    if listener is not None:
        listener.describe(recipe=config.recipe, pairs=[pair.name for pair in corpus.pairs])
    model = config.with_tasks(corpus.pairs).model  # its faults show before the hours of cleaning
    check_members(origin.ensemble, config.name, corpus.pairs, model, config.decode)
    return store, corpus


def _cleaned(config: RunConfig, store: Store, corpus: Corpus, origin: Origin) -> dict[LangPair, Artifact]:
    """Clean all pairs, by rules and by scores. Raises ValueError where the vocabulary of `origin` lacks a tag."""
    data = config.runtime.data
    if config.batch.mixture.has_rules:  # their faults show before the hours of cleaning
        from pipeline.batch.proportions import check_mixture

        check_mixture(config.batch.mixture, {pair.name: corpus.sources_of(pair) for pair in corpus.pairs})
    if origin.vocabulary is not None:
        check_tags(config.vocab, origin.vocabulary, corpus)
    scores = check_learned(config.corpus.learned, store, corpus)
    actions = [partial(clean, config.corpus, store, corpus, pair, data) for pair in corpus.pairs]
    cleaned = side_by_side(actions, at_once=data.stages_at_once)
    by_pair = without_worst(config, store, dict(zip(corpus.pairs, cleaned, strict=True)), scores)
    if origin.vocabulary is not None:
        vocabulary = make_vocabulary(store, by_pair, multilingual(config, corpus.pairs, origin))
        warn_of_bytes(config.vocab.from_run, vocabulary, by_pair)
    return by_pair


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
