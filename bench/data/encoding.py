"""Benchmark of encoding cleaned rows into files, beside SentencePiece's batch encoder on the same lines and threads."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.data.corpus import Text, fetched
from bench.data.scale import OURS, SENTENCEPIECE, Scale
from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.cleaning.clean import clean
from pipeline.corpus.funnel import funnel
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.encode import Shard, encode_shard
from pipeline.vocab.tokenizer import Vocabulary, train_vocabulary

_SAMPLE_LINES = 50_000
_WARM = 1000  # texts that are encoded before the first measurement
_LIMIT = 256  # tokens of a side, with tags and EOS


def measure(text: Text, scale: Scale, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each round, contender and number of threads. Ours also reads, tags, limits, counts and writes."""
    shard = _prepare(text, scale, directory)
    vocabulary = Vocabulary.load(shard.vocabulary)
    sides: tuple[list[str], list[str]] = ([], [])
    for batch in iter_bitext(shard.bitext, "train"):
        for side, column in zip(sides, batch.columns, strict=True):
            side += column.to_pylist()
    models = (vocabulary.source_model, vocabulary.target_model)
    for model, texts in zip(models, sides, strict=True):
        model.encode(texts[:_WARM])  # the first call prepares the model's tables
    for number in range(scale.rounds):
        for threads in scale.threads:
            start = time.perf_counter()
            for model, texts in zip(models, sides, strict=True):
                model.encode(texts, num_threads=threads)
            middle = time.perf_counter()
            counts = encode_shard(replace(shard, threads=threads))
            seconds_of = {SENTENCEPIECE: middle - start, OURS: time.perf_counter() - middle}
            for variant, seconds in seconds_of.items():
                yield {
                    "section": "encoding",
                    "text": text.name,
                    "variant": variant,
                    "threads": threads,
                    "round": number,
                    "rows": shard.stop,
                    "seconds": seconds,
                    "kept": sum(counts["rows"]) if variant == OURS else shard.stop,
                    "note": "",
                }


def _prepare(text: Text, scale: Scale, directory: Path) -> Shard:
    """Clean the text, train a vocabulary on it, and return the cleaned rows as one shard."""
    config, corpus = fetched(text, directory)
    bitext, vocabulary, out = (directory / name for name in ("bitext", "vocabulary", "encoded"))
    for folder in (bitext, vocabulary, out):
        folder.mkdir()
    tables = [table for table, _ in corpus.tables_of(text.pair)]
    config = replace(config, rules=replace(config.rules, language=None))  # the slowest rule, which is not measured here
    clean(config, text.pair, tables=tables, held_out=corpus.held_out.path if corpus.held_out else None, out=bitext)
    sizes = VocabConfig(shared=False, source_size=scale.pieces, target_size=scale.pieces, sample_lines=_SAMPLE_LINES)
    train_vocabulary(sizes, {text.pair: bitext}, vocabulary)
    rows = funnel(bitext)["train"]["kept"]
    return Shard(
        vocabulary=vocabulary,
        bitext=bitext,
        pair=text.pair,
        split="train",
        start=0,
        stop=rows,
        limits=(_LIMIT, _LIMIT),
        ends=(rows,),
        tags=("",),
        out=out,
        threads=1,
    )
