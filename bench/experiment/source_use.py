"""Use of the source: losses of references beside their own sources, and beside those of other sentences.

A model that has learned the target language alone has the same loss with both. B sentences of a batch, T target tokens.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from bench.decode.choice import test_set
from bench.output import Row, aligned, number
from eval.number_format import decimal
from pipeline.batch.assembly import Ints, assemble
from pipeline.batch.config import GroupShape
from pipeline.corpus.languages import LangPair
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.finished_run import FinishedRun
from pipeline.jobs.matmul import choose_matmul
from pipeline.model.transformer import Transformer
from pipeline.vocab.tokenizer import Vocabulary

COLUMNS = ("run", "learning_rate", "pairs", "sentences", "loss", "loss_with_others", "difference")
_BATCH = 16  # sentences

Tokens = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Sentences:
    """Sources and targets of one pair as tokens. See pipeline.batch.assembly."""

    sources: Sequence[Ints]
    targets: Sequence[Ints]

    def source(self, index: int) -> Ints:
        return self.sources[index]

    def target(self, index: int) -> Ints:
        return self.targets[index]


def measure(directories: Sequence[Path], artifacts: Path, *, sentences: int) -> list[dict[str, Any]]:
    """Return a row for each run, in float32 on the CPU. Losses are means over pairs, in nats a token.

    directories: of finished runs, whose models are still there.
    artifacts: the directory of their models.
    sentences: how many of each pair's own test set, from the first on. The other source of a sentence is that of the
        sentence half of them further on.
    Raises ValueError or OSError if a run or its model is not there, or a test set has a single sentence.
    """
    choose_matmul()
    rows: list[dict[str, Any]] = []
    for directory in directories:
        run = FinishedRun.open(directory.name, runs=directory.parent, store=Store(artifacts))
        vocabulary = Vocabulary.load(run.vocabulary.path)
        encoded = [_encoded(run, pair, vocabulary, sentences) for pair in run.pairs]
        longest = max(len(ids) for of_pair in encoded for side in of_pair for ids in side)
        checkpoints, device = run.model.path / "checkpoints", torch.device("cpu")
        model = load_model(checkpoints, vocabulary, longest=longest, config=DecodeConfig(), device=device)
        losses: list[tuple[float, float]] = []
        for sources, targets in encoded:
            half = len(sources) // 2
            other_sources = [*sources[half:], *sources[:half]]
            losses.append((loss(model, sources, targets), loss(model, other_sources, targets)))
        own, with_others = (fmean(values) for values in zip(*losses, strict=True))
        record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
        about = {"run": directory.name, "learning_rate": record["config"]["train"]["learning_rate"]}
        about |= {"pairs": len(encoded), "sentences": sum(len(sources) for sources, _ in encoded)}
        rows.append({**about, "loss": own, "loss_with_others": with_others, "difference": with_others - own})
    return rows


def _encoded(run: FinishedRun, pair: LangPair, vocabulary: Vocabulary, sentences: int) -> tuple[Tokens, Tokens]:
    lines, references = test_set(run, pair, sentences)
    if len(lines) < 2:
        raise ValueError(f"{run.directory}: one sentence of {pair.name} has no other source; test two or more")
    sources = vocabulary.encode_source([line.text for line in lines], pair.tgt, pair.src)
    return sources, vocabulary.encode_target(references)


@torch.inference_mode()
def loss(model: Transformer, sources: Tokens, targets: Tokens) -> float:
    """Return the mean of -log p over the tokens of all targets, beside the sources of the same numbers, in nats."""
    data = Sentences(*([torch.tensor(ids).numpy() for ids in side] for side in (sources, targets)))
    total = 0.0
    for start in range(0, len(targets), _BATCH):
        numbers = range(start, min(start + _BATCH, len(targets)))
        shape = GroupShape(
            rows=len(numbers),
            source=max(len(sources[index]) for index in numbers),
            target=max(len(targets[index]) for index in numbers),
        )
        batch = assemble([[(0, index)] for index in numbers], shape, [data])
        total += float(model(batch, label_smoothing=0.0).nll_BT.double().sum())
    return total / sum(map(len, targets))


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["run", "rate", "loss", "with other sources", "difference"]]
    for row in rows:
        losses = [decimal(row[name], 3) for name in ("loss", "loss_with_others", "difference")]
        lines.append([row["run"], number(row["learning_rate"], 4), *losses])
    return aligned(lines, left=["run"])
