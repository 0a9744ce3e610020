"""run.json, which says what a run was, and `runs/<name>`, where its results are laid out."""

import importlib.metadata
import json
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.config import ROOT, RunConfig
from pipeline.corpora import Corpus
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS
from pipeline.stage import MANIFEST, Artifact, hold_lock, remove_tree

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


def publish_run(report: Artifact, directory: Path, finish: Callable[[Path], None] = lambda directory: None) -> Path:
    """Lay out a report artifact as `runs/<name>`, replacing what an older one left there in one step. What somebody
    else put there stays, whenever this process is killed. finish: called with the directory before another process may
    publish there."""
    with _publishing(directory) as (fresh, old):
        if _laid_out(directory)[:1] != [report.key] or not (directory / "report.html").exists():
            _replace(directory, report, fresh, old)
        finish(directory)
    return directory


def _replace(directory: Path, report: Artifact, fresh: Path, old: Path) -> None:
    """fresh, old: as `_publishing` gives them."""
    if fresh.exists():
        remove_tree(fresh)
    shutil.copytree(report.path, fresh, ignore=shutil.ignore_patterns(MANIFEST))
    ours = [report.key, *(str(file.relative_to(fresh)) for file in sorted(fresh.rglob("*")) if file.is_file())]
    (fresh / ORIGIN).write_text("\n".join(ours), encoding="utf-8")
    if directory.exists():
        if _laid_out(directory):
            logger.info("%s: replacing the results of an earlier run", directory.name)
        directory.rename(old)
    fresh.rename(directory)
    _take_over(old, directory)


def lay_out(artifact: Artifact, directory: Path) -> Path:
    """Put the files of an artifact into `runs/<name>`, beside what else is there."""
    with _publishing(directory):
        directory.mkdir(exist_ok=True)
        for file in sorted(artifact.path.iterdir()):
            if file.name != MANIFEST:
                shutil.copyfile(file, directory / file.name)
    return directory


@contextmanager
def _publishing(directory: Path) -> Iterator[tuple[Path, Path]]:
    """Be the only one that lays out this run, after what a kill left half-done was put in order. Gives the names of the
    run's next directory and of its last one."""
    fresh, old, lock = (directory.with_name(f".{directory.name}.{kind}") for kind in ("new", "old", "lock"))
    directory.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(lock, f"results of {directory.name}"):
        if old.exists() and not directory.exists():
            old.rename(directory)
        _take_over(old, directory)
        yield fresh, old


def _laid_out(directory: Path) -> list[str]:
    """Key of the report that a run directory was laid out from, and the files that it had; empty without a report."""
    origin = directory / ORIGIN
    return origin.read_text(encoding="utf-8").split("\n") if origin.exists() else []


def _take_over(old: Path, directory: Path) -> None:
    """Move what somebody else put into a run's last directory to its new one, and the results too where that has none;
    remove the last one. Does nothing where there is no last one."""
    if not old.exists():
        return
    ours = {ORIGIN, *_laid_out(old)[1:]} if _laid_out(directory) else set()
    for file in [path for path in sorted(old.rglob("*")) if path.is_symlink() or not path.is_dir()]:
        name = file.relative_to(old)
        if str(name) not in ours and not os.path.lexists(directory / name):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            file.rename(directory / name)
    remove_tree(old)


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
