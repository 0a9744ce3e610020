"""Benchmark of packing sentences into steps: sentences a second, and the share of useful FLOPs in the steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.data import fill
from bench.data.corpus import Text
from bench.data.pairs import write_tsv
from bench.data.scale import Scale
from pipeline.config import load_config

BATCH = "freesoft38"
DIMS = {"d=256": [], "d=512": ["model.dim=512", "model.ffn_dim=2048", "model.heads=8", "model.moe.expert_dim=1024"]}


def measure(text: Text, scale: Scale, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each model. Its seconds are processor time for packing all `rows`."""
    directory.mkdir(parents=True, exist_ok=True)
    files = list(text.mixture)
    if not files:
        files = [directory / f"{text.pair.name}.tsv"]
        write_tsv(text.train.to_batches(), files[0])
    lengths = fill.read_corpus(files, scale.mixture_pieces, sample=scale.mixture_sample)
    rows = sum(len(pair.source) for pair in lengths)
    for variant, model in DIMS.items():
        config = load_config([f"batch={BATCH}", *model])
        packing = fill.measure(config.batch, lengths, config.model, scale.mixture_pieces, steps=scale.steps)
        shapes = ", ".join(f"{count} of {source} and {target}" for count, source, target in packing.shapes)
        yield {
            "section": "packing",
            "text": f"{len(files)} pairs" if text.mixture else text.name,
            "variant": variant,
            "threads": 1,
            "round": 0,
            "rows": rows,
            "seconds": rows / packing.sentences_per_second,
            "kept": round(rows * (1 - packing.dropped)),
            "useful": packing.useful,
            "note": f"{packing.padding:.1%} of the slots are padding; rows of tokens: {shapes}",
        }
