"""The share of useful FLOPs in training steps, for rows that are packed from a corpus's own lengths.

    python -m bench.data.fill TRAIN.tsv.xz ...

Each file has lines of source, target and any other columns. All files share one vocabulary, which is trained on a part
of them. The command prints the share of useful FLOPs, as the records of a run have it, for two sizes of a model.
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
    """The measured packing of steps.

    useful: useful over executed FLOPs of all steps.
    padding: share of the slots that have no token.
    dropped: share of the rows that are longer than the last shape.
    sentences_per_second: sentences that one processor packs.
    shapes: (rows, source, target) of each shape, with fitted targets.
    """

    useful: float
    padding: float
    dropped: float
    sentences_per_second: float
    shapes: list[tuple[int, int, int]]


def measure(
    batch: BatchConfig, lengths: Sequence[PairLengths], model: ModelConfig, vocabulary: int, *, steps: int = STEPS
) -> Fill:
    """Measure the first steps of a run. vocabulary: pieces of the target side."""
    kept, dropped = within(batch, lengths)
    batch = fit_targets(batch, kept)
    forward, stream = forward_flops(model, vocabulary), Mixture(batch, kept, seed=1)
    start = time.process_time()
    packed = list(itertools.islice(stream, steps))
    seconds = time.process_time() - start
    useful = sum(forward.of_sentences(step.lengths[:, 0], step.lengths[:, 1]) for step in packed)
    executed = sum(step.num_groups * forward.of_shape(step.shape) for step in packed)
    return Fill(
        useful=useful / executed,
        padding=float(np.mean([padding(step) for step in packed])),
        dropped=dropped,
        sentences_per_second=sum(len(step.sentences) for step in packed) / seconds,
        shapes=[(shape.rows, shape.source, shape.target) for shape in batch.shapes],
    )


def within(batch: BatchConfig, lengths: Sequence[PairLengths]) -> tuple[list[PairLengths], float]:
    """Return the rows that encoding keeps, and the share of the rows that it drops."""
    kept = []
    for pair in lengths:
        fits = (pair.source <= batch.max_source) & (pair.target <= batch.max_target)
        sources = [("", int(fits.sum()))]
        kept.append(PairLengths(name=pair.name, source=pair.source[fits], target=pair.target[fits], sources=sources))
    num_rows, num_kept = (sum(len(pair.source) for pair in pairs) for pairs in (lengths, kept))
    return kept, 1 - num_kept / num_rows


def read_corpus(files: Sequence[Path], size: int, *, sample: int = SAMPLE) -> list[PairLengths]:
    """Return the lengths of the texts in a joint vocabulary.

    size: pieces of the vocabulary.
    sample: rows that it is trained on; each file gives a number in proportion to the square root of its rows.
    """
    texts = {file.name.split(".")[0]: _read(file) for file in files}
    scale = sample / sum(len(rows) ** 0.5 for rows in texts.values())
    rng, lines = np.random.default_rng(1), list[str]()
    for rows in texts.values():
        places = rng.permutation(len(rows))[: int(scale * len(rows) ** 0.5)]
        lines += [side for place in places for side in rows[place]]
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
    return PairLengths(name=name, source=source + 2, target=target + 1, sources=[("", len(rows))])  # tag and EOS; EOS


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
