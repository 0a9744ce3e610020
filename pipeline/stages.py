"""The whole DAG on one page: corpus (to clean) -> vocab -> encode -> train -> translate, routing, then baselines,
score, report.

Each function here returns the artifact of one stage; `train_run` strings them together. Heavy imports wait until a
stage really runs, so a run that has nothing to do says so at once.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pipeline.baselines import Baselines, baselines, prepare_baselines
from pipeline.config import PLACE, ROOT, RunConfig
from pipeline.corpora import Corpus, clean, prepare_corpus
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.jobs.hosts import check_launcher
from pipeline.routing import ROUTING, routing
from pipeline.run_record import data_record, lay_out, publish_run, run_record
from pipeline.stage import Artifact, Listener, Stage, Store, check_writable, write_atomically
from pipeline.systems import System, Trained, prepare, train_and_translate
from pipeline.tasks import end_workers, side_by_side

logger = logging.getLogger(__name__)

CLOCKS = (  # in run.json
    "created",
    "train_seconds",
    "wall_seconds",
    "device_hours",
    "tokens_per_second",
    "mfu",
    "matmul_peak",
)


def train_run(config: RunConfig, listener: Listener | None = None) -> Path:
    """The main job; its results are in the returned directory, `runs/<name>`. listener: of its stages."""
    began = time.monotonic()
    check_launcher(config.runtime)
    store, corpus, cleaned = _cleaned(config, listener)
    rows = _train_rows(cleaned)
    moe = _multilingual(config, corpus.pairs)
    _, encoded = prepare(store, cleaned, moe)
    prepare_baselines(config, store, cleaned, rows)
    end_workers()  # training needs their memory
    model = train_and_translate(config, store, cleaned, moe)
    routed = record_routing(config, store, model)
    compared = baselines(config, store, cleaned, rows)
    scores = score(config, store, corpus, cleaned, encoded, model, compared)
    report = write_report(config, store, scores, model.model, routed)
    directory = ROOT / config.runtime.runs / config.name
    publish_run(report, directory, finish=lambda run: _summarise(store, run, time.monotonic() - began))
    _say_if_idle(store)
    logger.info("report: %s", _shown(directory / "report.html"))
    return directory


def data_run(config: RunConfig, listener: Listener | None = None) -> Path:
    """The data of the main job alone: the same stages up to training; what they did is in `runs/<name>/data.html`."""
    store, corpus, cleaned = _cleaned(config, listener)
    _, encoded = prepare(store, cleaned, _multilingual(config, corpus.pairs))
    page = write_data(config, store, corpus, cleaned, encoded)
    directory = lay_out(page, ROOT / config.runtime.runs / config.name)
    _say_if_idle(store)
    logger.info("data: %s", _shown(directory / "data.html"))
    if config.corpus.keep_removed:
        from pipeline.corpus.cleaning.clean import REMOVED

        for pair, artifact in cleaned.items():
            logger.info("removed rows of %s: %s", pair.name, _shown(artifact.path / REMOVED))
    return directory


def baselines_run(config: RunConfig, listener: Listener | None = None) -> tuple[Baselines, dict[LangPair, int]]:
    """The bilingual models of the main job alone, translated, and the training rows of their pairs: the same stages
    without the multilingual model."""
    if not config.baselines.tiers:
        raise ValueError("baselines.tiers is empty, so there is nothing to train; choose baselines=tiered")
    check_launcher(config.runtime)
    store, _, cleaned = _cleaned(config, listener)
    rows = _train_rows(cleaned)
    prepare_baselines(config, store, cleaned, rows)
    end_workers()
    trained = baselines(config, store, cleaned, rows)
    _say_if_idle(store)
    return trained, rows


def _cleaned(config: RunConfig, listener: Listener | None) -> tuple[Store, Corpus, dict[LangPair, Artifact]]:
    """The stages up to clean, of all pairs."""
    store, data = Store(ROOT / config.runtime.artifacts, listener), config.runtime.data
    check_writable(ROOT / config.runtime.runs, "runtime.runs")
    corpus = prepare_corpus(config.corpus, config.pairs, store, data)
    if config.batch.mixture.has_rules:  # their faults show before the hours of cleaning
        from pipeline.batch.proportions import check_mixture

        check_mixture(config.batch.mixture, {pair.name: corpus.sources_of(pair) for pair in corpus.pairs})
    actions = [partial(clean, config.corpus, store, corpus, pair, data) for pair in corpus.pairs]
    cleaned = side_by_side(actions, at_once=data.stages_at_once)
    return store, corpus, dict(zip(corpus.pairs, cleaned, strict=True))


def _multilingual(config: RunConfig, pairs: Sequence[LangPair]) -> System:
    """The main model, of all pairs."""
    return System(
        label="moe",
        pairs=pairs,
        vocab=config.vocab,
        batch=config.batch,
        model=config.model,
        train=config.train,
        runtime=config.runtime,
        layout=config.layout,
    )


def write_data(
    config: RunConfig,
    store: Store,
    corpus: Corpus,
    cleaned: Mapping[LangPair, Artifact],
    encoded: Mapping[LangPair, Artifact],
) -> Artifact:
    """data.html, and what it shows as plain files."""
    settings = {key: config.to_json()[key] for key in ("name", "recipe", "pairs", "corpus", "vocab")}
    record = {**data_record(config, corpus, cleaned, encoded), "config": settings}

    def run(out: Path) -> None:
        from eval.report.data_page import write_data

        (out / "data.json").write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
        write_data(out)

    inputs = {f"{kind} {pair}": a for kind, of in (("clean", cleaned), ("encode", encoded)) for pair, a in of.items()}
    return store.get(Stage(name="data", version=1, config=settings, inputs=inputs, run=run, label=config.name))


def record_routing(config: RunConfig, store: Store, trained: Trained) -> Artifact | None:
    """routing.json, of a model with experts."""
    if not trained.system.model.moe_layers():
        return None
    return routing(store, trained.model, decode=config.decode, runtime=config.runtime, label=trained.system.label)


def score(
    config: RunConfig,
    store: Store,
    corpus: Corpus,
    cleaned: Mapping[LangPair, Artifact],
    encoded: Mapping[LangPair, Artifact],
    model: Trained,
    compared: Baselines,
) -> Artifact:
    """scores.csv, significance.csv and macro.csv, with the translations and the run record that they rest on;
    search.csv where there was a search."""
    trained = {"moe": [model], **({"bilingual": compared.trained} if compared.trained else {})}
    found = compared.found
    record = run_record(
        config,
        corpus,
        cleaned,
        encoded,
        {name: [(t.system.pairs, t.model) for t in ts] for name, ts in trained.items()},
    )
    if found is not None:
        record["baseline_search"] = found.to_json()

    def run(out: Path) -> None:
        from eval.score.run import write_scores

        if found is not None:
            found.save(out / "search.csv", _train_rows(cleaned))
        (out / "run.json").write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
        for system, models in trained.items():
            (out / "translations" / system).mkdir(parents=True)
            for each in models:
                for pair in each.system.pairs:
                    file = f"{pair.name}.jsonl"
                    (out / "translations" / system / file).write_bytes((each.translations.path / file).read_bytes())
        write_scores(out, metrics=config.score.metrics, n_resamples=config.score.resamples)

    inputs = {f"{name} {i}": t.translations for name, ts in trained.items() for i, t in enumerate(ts)}
    if found is not None:
        inputs |= {f"candidate {i}": trial.model for i, trial in enumerate(found.trials)}
    decisive = {key: value for key, value in config.to_json().items() if key not in PLACE}
    stage = Stage(name="score", version=5, config=decisive, inputs=inputs, run=run, label=config.name, clocks=CLOCKS)
    return store.get(stage)


def write_report(
    config: RunConfig, store: Store, scores: Artifact, model: Artifact, routed: Artifact | None
) -> Artifact:
    def run(out: Path) -> None:
        from eval.records.results import load_results
        from eval.report.page import write_report

        for source in sorted(
            path for path in scores.path.rglob("*") if path.is_file() and path.name != "manifest.json"
        ):
            target = out / source.relative_to(scores.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
        (out / "metrics.jsonl").write_bytes((model.path / "log" / "metrics.jsonl").read_bytes())
        if routed is not None:
            (out / ROUTING).write_bytes((routed.path / ROUTING).read_bytes())
        write_report(out, load_results([(config.name, out)]))

    inputs = {"scores": scores, **({"routing": routed} if routed is not None else {})}
    stage = Stage(name="report", version=6, config={}, inputs=inputs, run=run, label=config.name)
    return store.get(stage)


def _train_rows(cleaned: Mapping[LangPair, Artifact]) -> dict[LangPair, int]:
    return {pair: int(funnel(artifact.path)["train"]["kept"]) for pair, artifact in cleaned.items()}


def _summarise(store: Store, directory: Path, seconds: float) -> None:
    """Write summary.md into the run's directory. A command that made nothing leaves the time of the one before it."""
    from eval.report.markdown_summary import COMMAND, write_summary

    if store.ran:
        record = {"seconds": round(seconds, 1), "made": len(store.ran), "earlier": len(store.earlier)}
        write_atomically(directory / COMMAND, json.dumps(record))
    write_summary(directory)


def _say_if_idle(store: Store) -> None:
    if not store.ran:
        logger.info("nothing to do: all %d stages are up to date", len(store.reused))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
