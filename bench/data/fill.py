"""How much of what a step computes is of use: rows packed from a corpus's own lengths.

    python -m bench.data.fill TRAIN.tsv.xz ...

Each file has lines of source, target and whatever else; all of them share one quick vocabulary. Prints the share of
useful FLOPs (as the records of a run have it) for the shapes of a configuration.
"""

import argparse
import io
import itertools
import lzma
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece

from pipeline.batch.config import BatchConfig
from pipeline.batch.lengths import PairLengths
from pipeline.batch.mixture import Mixture
from pipeline.batch.shapes import fit_targets
from pipeline.config import load_config
from pipeline.model.config import ModelConfig
from pipeline.model.flops import forward_flops
from pipeline.train.measure import padding

STEPS = 400
SAMPLE = 150_000  # sentence pairs that the quick vocabulary is trained on


@dataclass(frozen=True, kw_only=True)
class Fill:
    """useful: over executed FLOPs of all steps. padding: share of slots without a token. dropped: share of the rows,
    those longer than the last shape. sentences_per_second: packed, of one processor. shapes: with fitted targets."""

    useful: float
    padding: float
    dropped: float
    sentences_per_second: float
    shapes: list[tuple[int, int, int]]


def measure(
    batch: BatchConfig, lengths: Sequence[PairLengths], model: ModelConfig, vocabulary: int, *, steps: int = STEPS
) -> Fill:
    """Of the first steps of a run. vocabulary: pieces of the target side."""
    kept, dropped = within(batch, lengths)
    batch = fit_targets(batch, kept)
    forward, stream = forward_flops(model, vocabulary), Mixture(batch, kept, seed=1)
    began = time.process_time()
    made = list(itertools.islice(stream, steps))
    seconds = time.process_time() - began
    needed = sum(forward.of_sentences(step.lengths[:, 0], step.lengths[:, 1]) for step in made)
    padded = sum(step.num_groups * forward.of_shape(step.shape) for step in made)
    return Fill(
        useful=needed / padded,
        padding=float(np.mean([padding(step) for step in made])),
        dropped=dropped,
        sentences_per_second=sum(len(step.sentences) for step in made) / seconds,
        shapes=[(shape.rows, shape.source, shape.target) for shape in batch.shapes],
    )


def within(batch: BatchConfig, lengths: Sequence[PairLengths]) -> tuple[list[PairLengths], float]:
    """Without what encoding would drop, and its share of the rows."""
    kept = []
    for pair in lengths:
        fits = (pair.source <= batch.max_source) & (pair.target <= batch.max_target)
        sources = [("", int(fits.sum()))]
        kept.append(PairLengths(name=pair.name, source=pair.source[fits], target=pair.target[fits], sources=sources))
    rows = [sum(len(pair.source) for pair in each) for each in (lengths, kept)]
    return kept, 1 - rows[1] / rows[0]


def read_corpus(files: Sequence[Path], size: int, *, sample: int = SAMPLE) -> list[PairLengths]:
    """Lengths in a joint vocabulary of `size` pieces, trained on rows of every file, by the square root of its rows."""
    texts = {file.name.split(".")[0]: _read(file) for file in files}
    scale = sample / sum(len(rows) ** 0.5 for rows in texts.values())
    rng, lines = np.random.default_rng(1), list[str]()
    for rows in texts.values():
        chosen = rng.permutation(len(rows))[: int(scale * len(rows) ** 0.5)]
        lines += [side for row in chosen for side in rows[row]]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="unigram",
        vocab_size=size,
        hard_vocab_limit=False,
        byte_fallback=True,
        character_coverage=0.9995,
        num_threads=2,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [_lengths(processor, name, rows) for name, rows in texts.items()]


def _lengths(processor: sentencepiece.SentencePieceProcessor, name: str, rows: list[list[str]]) -> PairLengths:
    source, target = (
        np.fromiter(map(len, processor.encode([row[side] for row in rows], num_threads=2)), dtype=np.int32)
        for side in (0, 1)
    )
    return PairLengths(name=name, source=source + 2, target=target + 1, sources=[("", len(rows))])  # tag, end; end


def _read(file: Path) -> list[list[str]]:
    with lzma.open(file, "rt", encoding="utf-8", newline="\n") if file.suffix == ".xz" else file.open() as stream:
        return [line.rstrip("\n").split("\t")[:2] for line in stream]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--size", type=int, default=16_000, help="pieces of the vocabulary (16000)")
    parser.add_argument("--config", nargs="*", default=["batch=freesoft38"], help="overrides (batch=freesoft38)")
    arguments = parser.parse_args()
    lengths = read_corpus(arguments.files, arguments.size)
    for model in ([], ["model.dim=512", "model.ffn_dim=2048", "model.heads=8", "model.moe.expert_dim=1024"]):
        config = load_config([*arguments.config, *model])
        print(f"d={config.model.dim}: {measure(config.batch, lengths, config.model, arguments.size)}")


if __name__ == "__main__":
    main()
