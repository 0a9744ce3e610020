"""The sample that contenders train on: encoded by our own stages, and as text files or batches for peers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.train.contenders import Contest
from pipeline.batch.config import BatchConfig
from pipeline.batch.lengths import read_lengths
from pipeline.batch.mixture import Mixture
from pipeline.batch.shapes import fit_targets
from pipeline.config import ROOT, RunConfig, load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.learned_checks import check_learned
from pipeline.dag.learned_cleaning import without_worst
from pipeline.dag.store import Store
from pipeline.dag.system import System
from pipeline.dag.training import prepare
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.vocab.encoded import EncodedSplit

SPECIALS = 4  # ids of special tokens, which every tool adds itself
Ids = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The encoded sample.

    encoded: directories in the order of `pairs`.
    vocabulary: directory of the vocabularies.
    sizes: sizes of the source and target vocabulary.
    runtime: the defaults of `make train`.
    """

    pairs: list[str]
    encoded: list[str]
    vocabulary: str
    sizes: tuple[int, int]
    runtime: RuntimeConfig


def prepare_sample(contest: Contest, pairs: str) -> Sample:
    """Run or reuse our stages up to `encode`, in the store of `make train`."""
    config = load_config(["recipes=demo", f"pairs=[{pairs}]", *contest.vocabulary])
    return encoded_sample(config, contest.batch, contest.model)[0]


def encoded_sample(
    config: RunConfig, batch: BatchConfig, model: ModelConfig
) -> tuple[Sample, Mapping[LangPair, Artifact]]:
    """Run or reuse our stages up to `encode` for a configuration. Returns the sample, and the cleaned rows by pair."""
    store = Store(ROOT / config.runtime.artifacts)
    corpus = prepare_corpus(config.corpus, config.pairs, store, config.runtime.data)
    scores = check_learned(config.corpus.learned, store, corpus)
    by_rules = {pair: clean(config.corpus, store, corpus, pair, config.runtime.data) for pair in corpus.pairs}
    cleaned = without_worst(config, store, by_rules, scores)
    system = System(
        label="bench",
        pairs=corpus.pairs,
        vocab=config.vocab,
        batch=batch,
        model=model,
        train=config.train,
        runtime=config.runtime,
        layout=config.layout,
    )
    vocabulary, encoded = prepare(store, cleaned, system)
    content = json.loads((vocabulary.path / "vocab.json").read_text(encoding="utf-8"))
    sample = Sample(
        pairs=[pair.name for pair in corpus.pairs],
        encoded=[str(encoded[pair].path) for pair in corpus.pairs],
        vocabulary=str(vocabulary.path),
        sizes=(content["source_size"], content["target_size"]),
        runtime=config.runtime,
    )
    return sample, cleaned


def step_tokens(sample: Sample, batch: BatchConfig) -> int:
    """Return the mean number of real target tokens in our steps, over one window of packing."""
    lengths = read_lengths(sample.pairs, sample.encoded)
    steps = iter(Mixture(fit_targets(batch, lengths), lengths, seed=1))
    return round(float(np.mean([next(steps).target_tokens for _ in range(batch.window_steps - 1)])))


def sorted_sentences(sample: Sample) -> list[tuple[Ids, Ids]]:
    """Return all training pairs as (source, target) ids with EOS, in order of length.

    Batches that are cut from them have little padding, which is the best case for a peer that pads.
    """
    data = [EncodedSplit.open(Path(directory), "train") for directory in sample.encoded]
    sentences = [(d.source(i), d.target(i)) for d in data for i in range(len(d))]
    return sorted(sentences, key=lambda pair: (max(map(len, pair)), len(pair[0])))


def cut_batches(sentences: Sequence[tuple[Ids, Ids]], target_tokens: int, seed: int = 1) -> list[list[tuple[Ids, Ids]]]:
    """Return shuffled batches of about so many real target tokens each."""
    batches: list[list[tuple[Ids, Ids]]] = [[]]
    tokens = 0
    for pair in sentences:
        if tokens >= target_tokens:
            batches.append([])
            tokens = 0
        batches[-1].append(pair)
        tokens += len(pair[1])
    order = np.random.default_rng(seed).permutation(len(batches) - 1)  # the last may be short
    return [batches[i] for i in order] or batches


def padded_tokens(sentences: Sequence[tuple[Ids, Ids]], target_tokens: int) -> int:
    """Return the batch size, in padded tokens of the longer side, that gives so many real target tokens."""
    longer = sum(max(map(len, pair)) for pair in sentences)
    return round(target_tokens * longer / sum(len(pair[1]) for pair in sentences))


def write_text(batches: Sequence[Sequence[tuple[Ids, Ids]]], size: int, out: Path) -> None:
    """Write the text files of peers, in which ids are words, so that peers tokenize nothing.

    `train.src` and `train.tgt` have the sentences without EOS, which tools add themselves. `dev.*` have two sentences,
    and `vocab.txt` all words.
    """
    pairs = [pair for batch in batches for pair in batch]
    write_words(pairs, out / "train")
    write_words(pairs[:2], out / "dev")
    (out / "vocab.txt").write_text("".join(f"t{i}\n" for i in range(SPECIALS, size)), encoding="utf-8")


def write_words(pairs: Sequence[tuple[Ids | list[int], Ids | list[int]]], path: Path) -> None:
    """Write pairs of ids with EOS as two files of words without it, `<path>.src` and `<path>.tgt`."""
    for side, name in enumerate(("src", "tgt")):
        lines = [" ".join(f"t{i}" for i in pair[side][:-1]) + "\n" for pair in pairs]
        path.with_name(f"{path.name}.{name}").write_text("".join(lines), encoding="utf-8")
