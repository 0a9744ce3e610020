"""`make import`: a checkpoint of Hugging Face transformers as a finished run."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.config import ROOT, set_values
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.run_record import commit, environment
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.dag.uses import UseRecord
from pipeline.decode.config import DecodeConfig
from pipeline.earlier_runs import IMPORTED, RECORD, imported_from
from pipeline.files import check_writable, file_sha256, write_atomically
from pipeline.imports.checkpoint import CONFIG, Checkpoint
from pipeline.imports.config import ImportConfig
from pipeline.imports.languages import pairs_of
from pipeline.imports.settings import decode_config, longest_source, model_config
from pipeline.imports.vocabulary import Tokenizer, check_vocabulary, tokenizer_files, write_vocabulary
from pipeline.imports.weights import check_weights, vocabulary_size, write_checkpoint
from pipeline.jobs.default_precision import default_precision
from pipeline.model.config import ModelConfig
from pipeline.model.flops import count_parameters
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.vocabulary import vocabulary_sha256

logger = logging.getLogger(__name__)

RECIPE = "import"  # of the run that a checkpoint becomes
METRICS = ["bleu", "chrf++"]  # by which `make evaluate` scores it unless told otherwise


def import_checkpoint(config: ImportConfig) -> Path:
    """Write the artifacts and the record of the run, and return its directory.

    Raises ValueError for a checkpoint that cannot become a model of ours, before anything is written.
    """
    checkpoint = Checkpoint.find(config.source, ROOT)
    directory = ROOT / config.runtime.runs / config.name
    _check_name(directory, config.source)
    model, size = model_config(checkpoint), vocabulary_size(checkpoint)
    decode, longest = decode_config(checkpoint, default_precision(config.runtime.device)), longest_source(checkpoint)
    check_weights(checkpoint, model, size)
    tokenizer = Tokenizer.read(checkpoint)
    check_vocabulary(checkpoint, tokenizer, size)
    pairs = pairs_of(config.pairs, tokenizer.languages, config.source)
    check_writable(directory, "runtime.runs")
    store = Store(ROOT / config.runtime.artifacts)
    vocabulary = store.get(_vocabulary_stage(checkpoint, tokenizer, size))
    weights = store.get(_model_stage(checkpoint, model, size, vocabulary))
    artifacts = {"model": f"{weights.stage}/{weights.key}", "vocabulary": f"{vocabulary.stage}/{vocabulary.key}"}
    UseRecord(store.root, directory).add(*artifacts.values())
    directory.mkdir(parents=True, exist_ok=True)
    record = _record(config, pairs, model, size, artifacts, decode=decode, longest=longest)
    write_atomically(directory / RECORD, json.dumps(record, ensure_ascii=False, indent=1))
    logger.info("%s is run %s now, for %s", config.source, config.name, ", ".join(pair.name for pair in pairs))
    return directory


def _check_name(directory: Path, source: str) -> None:
    """Raise ValueError if the directory holds anything but an import of this source."""
    if not directory.exists() or not any(directory.iterdir()):
        return
    earlier = imported_from(directory)
    if earlier is None or _place(earlier) != _place(source):
        raise ValueError(f"NAME={directory.name}: {directory} holds another run; choose another NAME")


def _place(source: str) -> str:
    """Return a source in one spelling: the directory if there is one, else the name on the hub."""
    directory = ROOT / Path(source).expanduser()
    return str(directory.resolve()) if directory.is_dir() else source


def _vocabulary_stage(checkpoint: Checkpoint, tokenizer: Tokenizer, size: int) -> Stage:
    return Stage(
        name="import_vocab",
        version=1,
        config={"size": size, "files": _sha256(tokenizer_files(checkpoint))},
        run=partial(write_vocabulary, checkpoint, tokenizer, size),
        label=checkpoint.source,
    )


def _model_stage(checkpoint: Checkpoint, model: ModelConfig, size: int, vocabulary: Artifact) -> Stage:
    def run(out: Path) -> None:
        write_checkpoint(checkpoint, model, size, vocabulary_sha256(vocabulary.path), out / "checkpoints")

    return Stage(
        name="import_model",
        version=1,
        config={"files": _sha256([checkpoint.directory / CONFIG, *checkpoint.files])},
        inputs={"vocabulary": vocabulary},
        run=run,
        label=checkpoint.source,
    )


def _sha256(files: Sequence[Path]) -> dict[str, str]:
    return {file.name: file_sha256(file) for file in files}


def _record(
    config: ImportConfig,
    pairs: Sequence[LangPair],
    model: ModelConfig,
    size: int,
    artifacts: dict[str, str],
    *,
    decode: DecodeConfig,
    longest: int,
) -> dict[str, Any]:
    """Return the content of run.json: as far as a run has it that was not trained here.

    longest: tokens of the longest source.
    """
    counts = count_parameters(model, source_vocabulary=size, target_vocabulary=size, shared=True)
    settings = {
        "model": model.to_json(),
        "vocab": asdict(VocabConfig(shared=True, source_size=size, target_size=size), dict_factory=set_values),
        "decode": asdict(decode, dict_factory=set_values),
        "batch": {"shapes": [{"rows": 1, "source": longest, "target": longest}], "groups_per_step": 1, "mixture": {}},
        "score": {"metrics": METRICS, "resamples": 1000},
        "runtime": {"artifacts": config.runtime.artifacts},
    }
    system = {
        "pair": None,
        "size": f"{model.encoder_layers}+{model.decoder_layers} layers of {model.dim}",
        "parameters": counts.total,
        "active_parameters": counts.active,
        "artifacts": artifacts,
    }
    return {
        "name": config.name,
        "recipe": RECIPE,
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "pairs": [pair.name for pair in pairs],
        "languages": {pair.name: {"source": pair.src, "target": pair.tgt} for pair in pairs},
        "train_pairs": {pair.name: 0 for pair in pairs},
        IMPORTED: config.source,
        "config": settings,
        "environment": environment(config.runtime),
        "systems": {"moe": [system]},
    }
