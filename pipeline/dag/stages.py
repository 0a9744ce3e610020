"""The stages of every run, from top to bottom. Those of further test sets are in `test_rows.py` and `test_sets.py`,
those of learned cleaning in `learned_cleaning.py`:

    fetch -> split -> held_out -> clean -> vocab -> encode -> train -> translate -> routing -> score -> report

A declaration gives the stage its name, its version, its inputs, the slice of the configuration that can change its
output, and the function that fills its directory. These, but for the function, decide the key (`pipeline.dag.stage`): a
change of one of them makes every artifact of the stage anew. Which stages a run needs is said in `cleaning.py`,
`training.py`, `baselines.py` and `run.py`. `work.py` and `results.py` fill the directories.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unicodedata import unidata_version

from eval.records.decisive import NOT_OF_TRAINING
from pipeline.config import PLACE, RunConfig, set_values
from pipeline.corpus.config import CorpusConfig, HeldOutRule, SplitConfig
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.corpus.sources.copies import files_here
from pipeline.dag import results, work
from pipeline.dag.artifact import Artifact
from pipeline.dag.baseline_search import SearchResult
from pipeline.dag.corpus import SPLIT, Corpus, Table
from pipeline.dag.stage import MODEL_CLOCKS, RECORD_CLOCKS, Stage
from pipeline.dag.system import LEARNED, System, Trained, translating
from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.pruning import Pruning
from pipeline.files import file_sha256
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.jobs.visible_devices import device_type
from pipeline.tasks import DataConfig
from pipeline.train import retention
from pipeline.vocab.config import OF_A_RUN

Cleaned = Mapping[LangPair, Artifact]
Encoded = Mapping[LangPair, Artifact]
KNOWLEDGE = ("py3langid", "langcodes", "fonttools")  # packages whose data decide which rows the rules remove


def fetch(manifest: Manifest, entry: FileEntry, *, files: Path, cache: Path) -> Stage:
    """Declare the tables of one entry of a corpus's manifest.

    files: directory of the corpus; the hashes of the entry's files below it are part of the key.
    cache: directory of downloads.
    """
    about = {key: getattr(manifest, key) for key in ("name", "licence", "citation")}
    return Stage(
        name="fetch",
        version=2,
        config={
            "entry": {key: value for key, value in asdict(entry).items() if value},
            "manifest": {**about, "codes": dict(manifest.codes)},
            "sha256": [file_sha256(path) for path in files_here(entry, files)],
        },
        run=partial(work.fetch, manifest, entry, files, cache),
        label=f"{manifest.name} {entry.split} {entry.pair.name if entry.pair else ''}".strip(),
    )


def split(table: Table, config: SplitConfig, missing: Mapping[str, bool]) -> Stage:
    """Declare the parts of a training table. missing: whether dev and whether test are to be split off."""
    fetched, artifact = table
    return Stage(
        name=SPLIT,
        version=1,
        config={"split": asdict(config), "missing": dict(missing)},
        inputs={"table": artifact},
        run=partial(work.split, fetched, config, missing),
        label=f"{fetched.source} {'-'.join(fetched.codes)}",
    )


def held_out(tables: Sequence[Table], rule: HeldOutRule) -> Stage:
    """Declare the index of all texts of some tables, by which rows that contain such a text are found."""
    return Stage(
        name="held_out",
        version=2,
        config=asdict(rule),
        inputs={f"{artifact.key} {table.path.name}": artifact for table, artifact in tables},
        run=partial(work.index_held_out, tables, rule),
    )


def clean(corpus: Corpus, pair: LangPair, config: CorpusConfig, data: DataConfig) -> Stage:
    """Declare the cleaned rows of one pair."""
    indexes = {"held_out": corpus.held_out, "test texts": corpus.test_texts}
    return Stage(
        name="clean",
        version=4,
        config={
            "pair": pair.name,
            "rules": asdict(config.rules),
            "keep_removed": config.keep_removed,
            "knowledge": {"unicode": unidata_version, **{name: version(name) for name in KNOWLEDGE}},
        },
        inputs={
            **{f"table {number}": artifact for number, (_, artifact) in enumerate(corpus.tables_of(pair))},
            **{name: index for name, index in indexes.items() if index is not None},
        },
        run=partial(work.clean, corpus, pair, config, data),
        label=pair.name,
        resumable=True,
    )


def vocab(system: System, cleaned: Cleaned) -> Stage:
    """Declare the vocabulary of a system: its own, or that of a finished run with changes."""
    base = {} if system.vocabulary is None else {"vocabulary": system.vocabulary}
    unused = ("from_run",) if base else OF_A_RUN
    return Stage(
        name="vocab",
        version=2 if system.vocab.extend else 1,  # 2: imported vocabularies get pieces too
        config={key: value for key, value in asdict(system.vocab).items() if key not in unused},
        inputs={**base, **{pair.name: cleaned[pair] for pair in system.pairs}},
        run=partial(work.make_vocabulary, system, cleaned),
        label=system.label,
    )


def encode(system: System, pair: LangPair, vocabulary: Artifact, cleaned: Artifact) -> Stage:
    """Declare the rows of one pair as token ids, without those that are too long for the system's batches."""
    limits = {"max_source_tokens": system.batch.max_source, "max_target_tokens": system.batch.max_target}
    return Stage(
        name="encode",
        version=2,
        config={"pair": pair.name, **limits},
        inputs={"vocabulary": vocabulary, "bitext": cleaned},
        run=partial(work.encode, system, pair, vocabulary, cleaned),
        label=system.label if system.label.startswith(LEARNED) else pair.name,
        resumable=True,
    )


def train(system: System, vocabulary: Artifact, encoded: Encoded) -> Stage:
    """Declare the trained model of a system.

    The key has the content of the checkpoint that it starts from. It has the type of device unless that is the CPU,
    because torch's generators draw other numbers on another type.
    """
    device = device_type(system.runtime.device)
    settings = {k: v for k, v in asdict(system.train, dict_factory=set_values).items() if k not in NOT_OF_TRAINING}
    if system.train.initialize_from:
        settings["initialize_from"] = retention.content(retention.resolve(Path(system.train.initialize_from)))
    return Stage(
        name="train",
        version=2,
        config={
            "pairs": [pair.name for pair in system.pairs],
            "model": system.model.to_json(),
            "batch": system.batch.to_key(),
            "train": settings,
            **({"device": device} if device != "cpu" else {}),
        },
        inputs={"vocabulary": vocabulary, **{pair.name: artifact for pair, artifact in encoded.items()}},
        run=partial(work.train, system, vocabulary, encoded),
        label=system.label,
        resumable=True,
        clocks=MODEL_CLOCKS,
    )


def translate(
    cleaned: Cleaned,
    vocabulary: Artifact,
    model: Artifact,
    *,
    decode: DecodeConfig,
    runtime: RuntimeConfig,
    label: str,
    slot: int = 0,
    pruning: Pruning | None = None,
    ensemble: Sequence[Artifact] = (),
) -> Stage:
    """Declare translations of the test sets of `cleaned`.

    slot: as in `System`.
    pruning: the experts that take part; all of them by default.
    ensemble: models that translate together with `model`.
    """
    return Stage(
        name="translate",
        version=2,
        config={**decode.decisive(bool(ensemble)), **({"experts": pruning.experts} if pruning is not None else {})},
        inputs={**translating(vocabulary, model, ensemble), **{pair.name: rows for pair, rows in cleaned.items()}},
        run=partial(work.translate, cleaned, vocabulary, model, decode, runtime, label, slot, pruning, ensemble),
        label=label,
        resumable=True,
    )


def routing(
    model: Artifact, trained_on: Mapping[str, Artifact], *, decode: DecodeConfig, runtime: RuntimeConfig, label: str
) -> Stage:
    """Declare which experts of an MoE model the development sets choose, and which pieces do (`work.record_routing`).

    trained_on: inputs of the model, `vocabulary` and encoded rows by pair.
    decode: says of which checkpoints the model is the mean.
    """
    encoded = {pair: artifact for pair, artifact in trained_on.items() if pair != "vocabulary"}
    return Stage(
        name="routing",
        version=3,
        config={"split": work.ROUTING_SPLIT, "pairs": list(encoded), "average": [decode.average, decode.average_of]},
        inputs={**trained_on, "model": model},
        run=partial(work.record_routing, model, trained_on["vocabulary"], encoded, decode, runtime, label),
        label=label,
    )


def data_page(config: RunConfig, corpus: Corpus, cleaned: Cleaned, encoded: Encoded) -> Stage:
    """Declare data.html, which `make data` shows, and its content as plain files."""
    parts = ("name", "recipe", "pairs", "corpus", "vocab")
    settings = {key: config.to_json()[key] for key in parts} | config.report.to_key()
    kinds = (("clean", cleaned), ("encode", encoded))
    return Stage(
        name="data",
        version=1,
        config=settings,
        inputs={f"{kind} {pair}": artifact for kind, by_pair in kinds for pair, artifact in by_pair.items()},
        run=partial(results.write_data, config, corpus, cleaned, encoded, settings),
        label=config.name,
    )


def score(
    config: RunConfig,
    corpus: Corpus,
    cleaned: Cleaned,
    encoded: Encoded,
    systems: Mapping[str, Sequence[Trained]],
    before: Cleaned,
    search: SearchResult | None,
) -> Stage:
    """Declare the scores of all translations, with the translations and the run record that they rest on.

    systems: models by the name under which the report compares them, `moe` and `bilingual`.
    before: translations by the model that the main one started from.
    search: of the bilingual models, if they were searched.
    """
    inputs = {f"{name} {n}": model.translations for name, trained in systems.items() for n, model in enumerate(trained)}
    inputs |= {f"before {pair.name}": artifact for pair, artifact in before.items()}
    trials = search.trials if search is not None else ()
    return Stage(
        name="score",
        version=8,
        config={k: v for k, v in config.to_json().items() if k not in (*PLACE, "report")}
        | config.report.to_key()
        | config.score.programs_key(),
        inputs=inputs | {f"candidate {number}": trial.model for number, trial in enumerate(trials)},
        run=partial(results.write_scores, config, corpus, cleaned, encoded, systems, before, search),
        label=config.name,
        clocks=RECORD_CLOCKS,
    )


def report(
    name: str,
    scores: Artifact,
    model: Artifact,
    routing: Artifact | None,
    quoted: Sequence[str],
    tests: Mapping[str, Artifact],
) -> Stage:
    """Declare report.html, and all files that it shows.

    name: of the run.
    quoted: pairs whose development sentences the report may quote.
    tests: scores by further test set.
    """
    further = {f"test set {test_set}": artifact for test_set, artifact in tests.items()}
    return Stage(
        name="report",
        version=13,
        config={"quoted": list(quoted)} if routing is not None else {},
        inputs={"scores": scores, **({"routing": routing} if routing is not None else {}), **further},
        run=partial(results.write_report, name, scores, model, routing, quoted, tests),
        label=name,
    )
