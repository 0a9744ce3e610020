"""The work of the stages: each function here fills the directory `out` of one stage (`pipeline.dag.stages`).

Heavy modules are imported late, so that a run that has nothing to do says so at once.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from eval.records.specialisation import SPECIALISATION
from pipeline.corpus.config import CorpusConfig, HeldOutRule, SplitConfig
from pipeline.corpus.fetched import FetchedTable
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, Manifest
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import Corpus, Table
from pipeline.dag.system import System, vocabulary_sizes
from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.pruning import Pruning
from pipeline.decode.job.jobs import RoutingJob, TranslateJob
from pipeline.decode.job.shards import make_shards
from pipeline.engine.optimizer_kinds import checkpoint_bytes
from pipeline.files import check_free
from pipeline.jobs.hosts import launch_job
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.components import is_trainable
from pipeline.parallel.shapes import adapter_shapes, parameter_shapes
from pipeline.tasks import DataConfig, shard_runner
from pipeline.train.job import TrainJob
from pipeline.vocab.vocabulary import Vocabulary

EXPERTS = "experts.json"  # beside the translations of a pruned model
ROUTING = "routing.json"
ROUTING_SPLIT = "dev"
WORK = "work"  # directory of a translation until it is complete


def fetch(manifest: Manifest, entry: FileEntry, files: Path, cache: Path, out: Path) -> None:
    """Read the files of an entry of a manifest into tables."""
    from pipeline.corpus.fetch import fetch

    fetch(entry, manifest, files=files, cache=cache, out=out)


def split(table: FetchedTable, config: SplitConfig, missing: Mapping[str, bool], out: Path) -> None:
    """Cut the missing ones of dev and test off a training table."""
    from pipeline.corpus.split import split_table

    split_table(table, config, missing, out)


def index_held_out(tables: Sequence[Table], rule: HeldOutRule, out: Path) -> None:
    """Index the texts that no training row may contain."""
    from pipeline.corpus.cleaning.held_out import index_held_out

    index_held_out([(table.path, table.codes) for table, _ in tables], rule.shingle_words, out)


def clean(corpus: Corpus, pair: LangPair, config: CorpusConfig, data: DataConfig, out: Path) -> None:
    """Clean the rows of one pair, shard by shard."""
    from pipeline.corpus.cleaning.clean import clean

    tables = [table for table, _ in corpus.tables_of(pair)]
    rows = sum(table.rows for table in tables)
    clean(
        config,
        pair,
        tables=tables,
        held_out=corpus.held_out.path if corpus.held_out else None,
        test_texts=corpus.test_texts.path if corpus.test_texts else None,
        out=out,
        shard_rows=data.shard_rows,
        run_shards=shard_runner(data, rows, out / "log", f"clean {pair.name}"),
    )


def make_vocabulary(system: System, cleaned: Mapping[LangPair, Artifact], out: Path) -> None:
    """Train the tokenizers of a system on the training rows of its pairs, or change those of a finished run."""
    from pipeline.vocab.change import change_vocabulary
    from pipeline.vocab.tokenizer import train_vocabulary

    bitexts = {pair: cleaned[pair].path for pair in system.pairs}
    if system.vocabulary is None:
        train_vocabulary(system.vocab, bitexts, out)
    else:
        change_vocabulary(system.vocab, system.vocabulary.path, bitexts, out)


def encode(system: System, pair: LangPair, vocabulary: Artifact, cleaned: Artifact, out: Path) -> None:
    """Encode the rows of one pair, shard by shard."""
    from pipeline.vocab.encode import encode

    data = system.runtime.data
    rows = funnel(cleaned.path)["train"]["kept"]
    encode(
        vocabulary.path,
        cleaned.path,
        pair,
        max_source_tokens=system.batch.max_source,
        max_target_tokens=system.batch.max_target,
        out=out,
        shard_rows=data.shard_rows,
        threads=1,
        run=shard_runner(data, rows, out / "log", f"encode {pair.name}"),
    )


def train(system: System, vocabulary: Artifact, encoded: Mapping[LangPair, Artifact], out: Path) -> None:
    """Train a model in processes of its own. Raises ValueError where its checkpoints have no room on the disk."""
    title = f"train {system.label}"
    sizes = vocabulary_sizes(vocabulary)
    shapes = parameter_shapes(
        system.model,
        source_vocabulary=sizes["source_size"],
        target_vocabulary=sizes["target_size"],
        shared=sizes["shared"],
    )
    if (lora := system.train.lora) is not None:
        shapes += adapter_shapes(shapes, lora.rank, lora.targets)
    checkpoints = system.train.checkpoints.most(system.train.max_steps)
    size = checkpoint_bytes(
        shapes,
        optimizer=system.train.optimizer,
        ema=bool(system.train.ema),
        trains=partial(is_trainable, trainable=system.train.components),
    )
    check_free(out, checkpoints * size, title)
    job = TrainJob(
        title=title,
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
        directions=[f"{pair.src}:{pair.tgt}" for pair in system.pairs],
    )
    _launch("pipeline.train", job, out, slot=system.slot)


def translate(
    cleaned: Mapping[LangPair, Artifact],
    vocabulary: Artifact,
    model: Artifact,
    decode: DecodeConfig,
    runtime: RuntimeConfig,
    label: str,
    slot: int,
    pruning: Pruning | None,
    ensemble: Sequence[Artifact],
    out: Path,
) -> None:
    """Translate the test sets in processes of their own, and merge what each process wrote."""
    from pipeline.corpus.bitext import read_column
    from pipeline.decode.job.starter import run_job, write_test_translations

    for old in out.glob("*.rank-*.jsonl"):  # version 0.2.4 left them here when it was interrupted
        old.unlink()
    if pruning is not None:
        (out / EXPERTS).write_text(pruning.to_json(), encoding="utf-8")
    shards = {
        pair: make_shards(
            out / WORK / pair.name, read_column(rows.path, "test", "src"), source=pair.src, target=pair.tgt
        )
        for pair, rows in cleaned.items()
    }
    job = TranslateJob(
        title=f"translate {label}",
        slot=slot,
        rounds=[[shard for of_pair in shards.values() for shard in of_pair]],
        max_source_tokens=0,
        long="whole",
        vocabulary=str(vocabulary.path),
        checkpoints=str(model.path / "checkpoints"),
        log=str(out / "log"),
        decode=decode,
        runtime=runtime,
        experts=str(out / EXPERTS) if pruning is not None else "",
        ensemble=[str(member.path / "checkpoints") for member in ensemble],
    )
    run_job(job)
    for pair, rows in cleaned.items():
        write_test_translations(shards[pair], rows.path, out / f"{pair.name}.jsonl")
    shutil.rmtree(out / WORK)


def record_routing(
    model: Artifact,
    vocabulary: Artifact,
    encoded: Mapping[str, Artifact],
    decode: DecodeConfig,
    runtime: RuntimeConfig,
    label: str,
    out: Path,
) -> None:
    """Write routing.json: {"split": "dev", "layers": layer -> pair -> `tokens` and lists of one number an expert}.

    `pipeline.decode.job.routing` says which lists these are. Also writes specialisation.json: layer -> what
    `pipeline.decode.experts.specialisation.describe_layer` returns.

    encoded: rows of each pair that the model was trained on.
    """
    from pipeline.decode.experts.specialisation import describe_layer
    from pipeline.decode.job.piece_use import merged_pieces

    job = RoutingJob(
        title=f"routing {label}",
        pairs=list(encoded),
        encoded=[str(rows.path) for rows in encoded.values()],
        split=ROUTING_SPLIT,
        vocabulary=str(vocabulary.path),
        checkpoints=str(model.path / "checkpoints"),
        out=str(out),
        decode=replace(decode, precision="fp32"),
        runtime=runtime,
    )
    _launch("pipeline.decode.job.routing", job, out)
    parts = [out / f"routing.rank-{rank}.json" for rank in range(runtime.processes)]
    layers = _sum([json.loads(part.read_text(encoding="utf-8")) for part in parts])
    (out / ROUTING).write_text(json.dumps({"split": ROUTING_SPLIT, "layers": layers}), encoding="utf-8")
    for part in parts:
        part.unlink()
    loaded = Vocabulary.load(vocabulary.path)
    described = {}
    for layer, (counts, quotes) in merged_pieces(out, runtime.processes).items():
        side = "source" if layer.startswith("encoder") else "target"
        first = {pair: measures["first"] for pair, measures in layers[layer].items()}
        described[layer] = describe_layer(counts, first, quotes, loaded.pieces(side), loaded.special_ids(side))
    (out / SPECIALISATION).write_text(json.dumps({"layers": described}, ensure_ascii=False), encoding="utf-8")


def read_routing(artifact: Artifact) -> dict[str, dict[str, Any]]:
    """Return what `record_routing` wrote: layer -> pair -> measure."""
    layers: dict[str, dict[str, Any]] = json.loads((artifact.path / ROUTING).read_text(encoding="utf-8"))["layers"]
    return layers


def _sum(parts: Sequence[Any]) -> Any:
    """Add the numbers at the same place in nested mappings and lists.

    The sums are rounded, so that they do not depend on the number of parts.
    """
    first = parts[0]
    if isinstance(first, dict):
        return {key: _sum([part[key] for part in parts]) for key in first}
    if isinstance(first, list):
        return [_sum(values) for values in zip(*parts, strict=True)]
    return round(sum(parts), 4)


def _launch(module: str, job: TrainJob | RoutingJob, out: Path, slot: int = 0) -> None:
    launch_job(module, asdict(job), directory=out / "log", runtime=job.runtime, title=job.title, slot=slot)
