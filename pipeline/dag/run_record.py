"""run.json: the configuration, environment, data and costs of a run."""

import importlib.metadata
import json
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eval.records.scores import SYSTEM
from pipeline.config import ROOT, RunConfig
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.dag.artifact import MANIFEST, Artifact
from pipeline.dag.corpus import Corpus, may_show
from pipeline.dag.system import Trained, members_record
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.train import retention

logger = logging.getLogger(__name__)

NUM_EXAMPLES = 3
PACKAGES = ("torch", "deepspeed", "sentencepiece", "sacrebleu", "datasets", "hydra-core", "numpy")


def run_record(
    config: RunConfig,
    corpus: Corpus,
    cleaned: Mapping[LangPair, Artifact],
    encoded: Mapping[LangPair, Artifact],
    systems: Mapping[str, Sequence[Trained]],
) -> dict[str, Any]:
    """Return the record that `eval` reads: `data_record`, and a cost ledger for each model of each system."""
    return {
        **data_record(config, corpus, cleaned, encoded),
        "systems": {name: [ledger(trained) for trained in models] for name, models in systems.items()},
        **members_record(config.decode, [model for main in systems.get(SYSTEM, ()) for model in main.ensemble]),
        "baseline_boundaries": config.baselines.boundaries(),
        "sample_sentences": config.report.show and all(corpus.may_show(pair, "test") for pair in cleaned),
    }


def data_record(
    config: RunConfig,
    corpus: Corpus,
    cleaned: Mapping[LangPair, Artifact],
    encoded: Mapping[LangPair, Artifact],
) -> dict[str, Any]:
    """Return the part of the record that is known before training.

    It has names, configuration, environment, corpus and funnel, and examples of sources that a report may show.
    """
    manifest = corpus.manifest
    counts = {p.name: json.loads((a.path / "encode.json").read_text(encoding="utf-8")) for p, a in encoded.items()}
    added = "; ".join(f"{addition.name} ({addition.licence})" for addition in corpus.added)
    funnels = {pair.name: funnel(artifact.path) for pair, artifact in cleaned.items()}
    return {
        "name": config.name,
        "recipe": config.recipe,
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "pairs": [pair.name for pair in cleaned],
        "languages": {pair.name: {"source": pair.src, "target": pair.tgt} for pair in cleaned},
        "train_pairs": {name: funnel["train"]["kept"] for name, funnel in funnels.items()},
        "config": config.to_json(),
        "environment": environment(config.runtime),
        "corpus": {
            **{key: getattr(manifest, key) for key in ("name", "title", "licence", "citation")},
            **({"added": added} if added else {}),
            "notice": corpus.notice,
        },
        "funnel": {name: {split: funnel[split] for split in SPLITS} for name, funnel in funnels.items()},
        "sources": {name: [_without_text(source) for source in f["sources"]] for name, f in funnels.items()},
        "not_judged": {name: funnel["not_judged"] for name, funnel in funnels.items()},
        "encoded": {
            name: {key: count["splits"]["train"][key] for key in ("rows", "dropped")} for name, count in counts.items()
        },
        "examples": {
            name: examples
            for name, funnel in funnels.items()
            if config.report.show and (examples := _showable(corpus, funnel["sources"]))
        },
    }


def _without_text(source: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in source.items() if key != "examples"}


def _showable(corpus: Corpus, sources: Sequence[Mapping[str, Any]]) -> dict[str, list[list[str]]]:
    """Return at most three examples of each rule, from the sources that a report may show."""
    examples: dict[str, list[list[str]]] = {}
    for source in sources:
        for rule, rows in source["examples"].items() if may_show(corpus.manifests, source) else ():
            examples[rule] = [*examples.get(rule, []), *rows][:NUM_EXAMPLES]
    return examples


def environment(runtime: RuntimeConfig) -> dict[str, Any]:
    """Return the versions and the machine: results are equal bit for bit only where these are the same."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "processes": runtime.processes,
        "threads": runtime.threads,
    }


def commit() -> str:
    """Return the checkout's commit, with `-dirty` where files differ from it; `unknown` outside git."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    described = subprocess.run(command, capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


def ledger(trained: Trained) -> dict[str, Any]:
    """Return what a training cost, when it would have stopped by itself, and the artifacts that have its model."""
    model, pairs = trained.model, trained.system.pairs
    costs: dict[str, Any] = json.loads((model.path / "log" / "ledger.json").read_text(encoding="utf-8"))
    manifest = json.loads((model.path / MANIFEST).read_text(encoding="utf-8"))
    pair = pairs[0].name if len(pairs) == 1 else None
    vocabulary = manifest["inputs"]["vocabulary"]
    artifacts = {"model": f"{model.stage}/{model.key}", "vocabulary": f"{vocabulary['stage']}/{vocabulary['key']}"}
    if trained.system.train.initialize_from:
        started_from = retention.resolve(Path(trained.system.train.initialize_from)).parents[1]
        if (started_from / MANIFEST).is_file():
            artifacts["initialized_from"] = f"{started_from.parent.name}/{started_from.name}"
    changes = {}
    if trained.system.vocab.changed:
        content = (model.path.parents[1] / artifacts["vocabulary"] / "vocab.json").read_text(encoding="utf-8")
        changes["vocabulary_changes"] = json.loads(content)["changes"]
    patience = {"patience": trained.system.train.patience, "validate_every": trained.system.train.validate_every}
    return {"pair": pair, **costs, **patience, **changes, "wall_seconds": manifest["seconds"], "artifacts": artifacts}


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
