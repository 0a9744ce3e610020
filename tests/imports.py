"""Random checkpoints of transformers, made by transformers itself in its own environment (bench/setup.sh)."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from pipeline.config import ROOT
from tests.exports import V4, install_or_skip

SAMPLE = ROOT / "data" / "sample"
CODES = {"bcp47": ("de", "tr"), "nllb": ("deu_Latn", "tur_Latn"), "m2m": ("de", "tr")}
COLUMNS = (0, 1, 7)  # en, de and tr of the sample
TARGETS = {"nllb": "eng_Latn", "m2m": "en"}
NASTY = [" two  spaces ", "１２ ﬁ e\u0301", "never-a-piece ▁ x", "日本語の文。 Ђорђе"]


def make_checkpoints(root: Path) -> dict[str, Any]:
    """Write checkpoints below a directory, and return the answers of tests.checkpoint_worker by their names."""
    install_or_skip(ROOT)
    kinds = {"nllb": "nllb", "m2m": "m2m", "moe": "nllb", "shards": "nllb"}
    case = {
        "root": str(root),
        "corpus": str(corpus_below(root)),
        "questions": {name: texts_of(kind) for name, kind in kinds.items()},
        "target": {name: TARGETS[kind] for name, kind in kinds.items()},
    }
    return ask("tests.checkpoint_worker", case)


def corpus_below(root: Path) -> Path:
    """Write text for a tokenizer."""
    corpus = root / "corpus.txt"
    rows = rows_of_the_sample()[1:800]
    corpus.write_text("\n".join(row[column] for row in rows for column in COLUMNS), encoding="utf-8")
    return corpus


def rows_of_the_sample() -> list[list[str]]:
    return [row.split("\t") for row in (SAMPLE / "train.tsv").read_text(encoding="utf-8").splitlines()]


def texts_of(kind: str) -> dict[str, list[str]]:
    """Return German and Turkish texts by their codes in checkpoints of one kind."""
    rows = rows_of_the_sample()[800:]
    german, turkish = ([row[column] for row in rows if 10 < len(row[column]) < 60] for column in COLUMNS[1:])
    return dict(zip(CODES[kind], ([*german[:5], *NASTY], turkish[:4]), strict=True))


def ask(module: str, case: Any, environment: str = V4) -> Any:
    """Run a module in an environment of bench/setup.sh that has transformers, and return its answer."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [str(ROOT / environment / "bin/python"), "-W", "ignore", "-m", module]
    process = subprocess.run(command, input=json.dumps(case), env=variables, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])
