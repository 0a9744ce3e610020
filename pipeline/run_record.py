"""run.json, which says what a run was, and `runs/<name>`, where its results are laid out."""

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

from pipeline.config import ROOT, RunConfig
from pipeline.corpora import Corpus
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.stage import MANIFEST, Artifact, remove_tree

logger = logging.getLogger(__name__)

SHOWABLE = (
    "MPL-2.0",
    "CC-BY-4.0",
    "CC-BY-SA-3.0",
    "CC-BY-SA-4.0",
    "CC0-1.0",
    "GPL-2.0-or-later",
    "GPL-3.0-or-later",
    "Apache-2.0",
    "MIT",
)
NUM_EXAMPLES = 3
PACKAGES = ("torch", "deepspeed", "sentencepiece", "sacrebleu", "datasets", "hydra-core", "numpy")
ORIGIN = ".artifact"  # which report artifact a run directory was laid out from


def run_record(
    config: RunConfig,
    corpus: Corpus,
    cleaned: Mapping[LangPair, Artifact],
    encoded: Mapping[LangPair, Artifact],
    systems: Mapping[str, Sequence[tuple[Sequence[LangPair], Artifact]]],
) -> dict[str, Any]:
    """The record that `eval` reads: names, configuration, environment, corpus, funnel and a cost ledger for each
    model."""
    return {
        **data_record(config, corpus, cleaned, encoded),
        "systems": {name: [_ledger(pairs, model) for pairs, model in models] for name, models in systems.items()},
        "sample_sentences": all(
            table.licence in SHOWABLE for pair in cleaned for table, _ in corpus.tables_of(pair, "test")
        ),
    }


def data_record(
    config: RunConfig,
    corpus: Corpus,
    cleaned: Mapping[LangPair, Artifact],
    encoded: Mapping[LangPair, Artifact],
) -> dict[str, Any]:
    """The part of the record that is known before training. examples: of sources whose licence allows it."""
    manifest = corpus.manifest
    counts = {p.name: json.loads((a.path / "encode.json").read_text(encoding="utf-8")) for p, a in encoded.items()}
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
        "environment": environment(config),
        "corpus": {
            **{key: getattr(manifest, key) for key in ("name", "title", "licence", "citation")},
            **({"added": "; ".join(f"{each.name} ({each.licence})" for each in corpus.added)} if corpus.added else {}),
            "notice": corpus.notice,
        },
        "funnel": {name: {split: funnel[split] for split in SPLITS} for name, funnel in funnels.items()},
        "sources": {name: [_without_text(source) for source in f["sources"]] for name, f in funnels.items()},
        "not_judged": {name: funnel["not_judged"] for name, funnel in funnels.items()},
        "encoded": {
            name: {key: each["splits"]["train"][key] for key in ("rows", "dropped")} for name, each in counts.items()
        },
        "examples": {name: examples for name, funnel in funnels.items() if (examples := _showable(funnel["sources"]))},
    }


def _without_text(source: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in source.items() if key != "examples"}


def _showable(sources: Sequence[Mapping[str, Any]]) -> dict[str, list[list[str]]]:
    """Three examples by rule, at most, of the sources whose licence allows to show them."""
    found: dict[str, list[list[str]]] = {}
    for source in sources:
        for rule, rows in source["examples"].items() if source["licence"] in SHOWABLE else ():
            found[rule] = [*found.get(rule, []), *rows][:NUM_EXAMPLES]
    return found


def environment(config: RunConfig) -> dict[str, Any]:
    """Versions and machine, which bound what `bitwise` can mean."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "processes": config.runtime.processes,
        "threads": config.runtime.threads,
    }


def commit() -> str:
    """The checkout's commit, `-dirty` where files differ from it; `unknown` outside git."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    described = subprocess.run(command, capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


def publish_run(report: Artifact, directory: Path) -> Path:
    """Lay out a report artifact as `runs/<name>`, replacing what an older one left there in one step."""
    origin = directory / ORIGIN
    if origin.exists() and _laid_out(directory) == report.key and (directory / "report.html").exists():
        return directory
    fresh, old = directory.with_name(f".{directory.name}.new"), directory.with_name(f".{directory.name}.old")
    for leftover in (fresh, old):
        if leftover.exists():
            remove_tree(leftover)
    shutil.copytree(report.path, fresh, ignore=shutil.ignore_patterns(MANIFEST))
    ours = [report.key, *(str(file.relative_to(fresh)) for file in sorted(fresh.rglob("*")) if file.is_file())]
    (fresh / ORIGIN).write_text("\n".join(ours), encoding="utf-8")
    if directory.exists():
        _carry_over(directory, fresh)
        directory.rename(old)
    fresh.rename(directory)
    if old.exists():
        remove_tree(old)
    return directory


def lay_out(artifact: Artifact, directory: Path) -> Path:
    """Put the files of an artifact into `runs/<name>`, beside what else is there."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in sorted(artifact.path.iterdir()):
        if file.name != MANIFEST:
            shutil.copyfile(file, directory / file.name)
    return directory


def _laid_out(directory: Path) -> str:
    return (directory / ORIGIN).read_text(encoding="utf-8").split("\n", 1)[0]


def _carry_over(old: Path, fresh: Path) -> None:
    """Keep what somebody else put into a run directory."""
    ours = set()
    if (old / ORIGIN).exists():
        ours = set((old / ORIGIN).read_text(encoding="utf-8").split("\n")[1:])
        logger.info("%s: replacing the results of an earlier run", old.name)
    for file in (file for file in sorted(old.rglob("*")) if file.is_file() and file != old / ORIGIN):
        name = file.relative_to(old)
        if str(name) not in ours and not (fresh / name).exists():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, fresh / name)


def _ledger(pairs: Sequence[LangPair], model: Artifact) -> dict[str, Any]:
    ledger: dict[str, Any] = json.loads((model.path / "log" / "ledger.json").read_text(encoding="utf-8"))
    manifest = json.loads((model.path / MANIFEST).read_text(encoding="utf-8"))
    pair = pairs[0].name if len(pairs) == 1 else None
    vocabulary = manifest["inputs"]["vocabulary"]
    artifacts = {"model": f"{model.stage}/{model.key}", "vocabulary": f"{vocabulary['stage']}/{vocabulary['key']}"}
    return {"pair": pair, **ledger, "wall_seconds": manifest["seconds"], "artifacts": artifacts}


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
