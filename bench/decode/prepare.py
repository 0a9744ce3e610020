"""The material of the contest: trained models, their exports, and the sentences."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.decode.systems import CTRANSLATE2, MODELS, TRANSFORMERS, Scale
from pipeline.config import ROOT
from pipeline.dag.store import Store
from pipeline.finished_run import FinishedRun
from pipeline.vocab.tokenizer import Vocabulary

RUNS, ARTIFACTS = ROOT / "runs", ROOT / "data" / "artifacts"


@dataclass(frozen=True, kw_only=True)
class Material:
    """The material for the systems of one model.

    exports: by peer, the directory that it reads, or the reason why the export failed.
    sources: ids of the source sentences, with tag and `</s>`.
    """

    run: FinishedRun
    exports: dict[str, Path | str]
    sources: list[list[int]]

    def job(self) -> dict[str, Any]:
        """Return the job of our own processes: paths of the model and the sentences."""
        return {
            "checkpoints": str(self.run.model.path / "checkpoints"),
            "vocabulary": str(self.run.vocabulary.path),
            "sources": self.sources,
        }


def prepare(model: str, scale: Scale, directory: Path, device: str) -> Material:
    """Train the model's recipe unless a finished run exists, export the model, and read its test sets."""
    recipe = MODELS[model]
    name = recipe + scale.suffix
    if not (RUNS / name / "run.json").exists():
        command = [sys.executable, "-m", "pipeline", "train", f"recipes={recipe}", f"name={name}"]
        where = ["runtime=gpu"] if device == "cuda" else []
        subprocess.run([*command, *where, *scale.training], cwd=ROOT, check=True, stdout=sys.stderr)
    run = FinishedRun.open(name, runs=RUNS, store=Store(ARTIFACTS))
    exports: dict[str, Path | str] = {
        TRANSFORMERS: _export(name, "huggingface", Path(sys.executable), directory / TRANSFORMERS)
    }
    if model == "dense" and device == "cpu":
        python = ROOT / ".venv-bench" / "bin" / "python"
        exports[CTRANSLATE2] = _export(name, "ctranslate2", python, directory / CTRANSLATE2)
    vocabulary = Vocabulary.load(run.vocabulary.path)
    sources: list[list[int]] = []
    for pair in run.pairs:
        path = RUNS / name / "translations" / "moe" / f"{pair.name}.jsonl"
        lines = [json.loads(line)["source"] for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        sources += vocabulary.encode_source(lines, pair.tgt)
    return Material(run=run, exports=exports, sources=sources[: scale.sentences])


def _export(name: str, format_: str, python: Path, out: Path) -> Path | str:
    command = [str(python), "-m", "pipeline", "export"]
    try:
        process = subprocess.run(
            [*command, f"run={name}", f"format={format_}", f"out={out}"], cwd=ROOT, capture_output=True, text=True
        )
    except FileNotFoundError:
        return f"{python} is not there: bench/setup.sh decode makes it"
    return out if process.returncode == 0 else (process.stderr.strip().splitlines() or ["export failed"])[-1]
