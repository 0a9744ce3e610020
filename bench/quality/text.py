"""The text of the contest: read, cut into pieces and written for every system, with one vocabulary for each size."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.train.data import Ids, Sample, encoded_sample, padded_tokens, sorted_sentences, step_tokens, write_words
from pipeline.config import RunConfig
from pipeline.corpus.bitext import read_column
from pipeline.corpus.languages import LangPair
from pipeline.vocab.vocabulary import Vocabulary

EPOCHS = 8  # passes over the text, each cut into batches anew, of peers that do not sort by length


@dataclass(frozen=True, kw_only=True)
class Text:
    """The text for one size of the vocabulary.

    sample: our own encoded rows.
    directory: files of words for peers. A word stands for a piece.
    sources, references: the test set.
    target_tokens: real target tokens of one of our steps.
    padded_tokens: the same in padded tokens of the longer side.
    sentences: training sentences of an epoch.
    """

    sample: Sample
    pair: LangPair
    directory: Path
    sources: list[str]
    references: list[str]
    target_tokens: int
    padded_tokens: int
    sentences: int

    def decode(self, words: Path) -> list[str]:
        """Return the text of a file of translated words."""
        lines = words.read_text(encoding="utf-8").split("\n")[: len(self.sources)]
        ids = [[int(word[1:]) for word in line.split() if word[0] == "t" and word[1:].isdigit()] for line in lines]
        return Vocabulary.load(Path(self.sample.vocabulary)).decode_target(ids)


def prepare_text(
    config: RunConfig, size: int, root: Path, *, batch_tokens: int = 0, processes: int = 1, lines: int | None = None
) -> Text:
    """Run or reuse our stages up to `encode`, and write the files of peers below `root`.

    size: of the vocabulary; 0 is that of the recipe.
    batch_tokens: padded tokens of a batch in the files of words; 0 is those of our steps.
    processes: of the peer that shares a step's batches.
    lines: most sentences of the test set; None is all of it.
    """
    if size:
        config = replace(config, vocab=replace(config.vocab, source_size=size, target_size=size))
    sample, cleaned = encoded_sample(config, config.batch, config.model)
    ((pair, rows),) = cleaned.items()
    sentences = sorted_sentences(sample)
    tokens = step_tokens(sample, config.batch)
    text = Text(
        sample=sample,
        pair=pair,
        directory=root / f"text-{size}-{batch_tokens}-{processes}",
        sources=read_column(rows.path, "test", "src")[:lines],
        references=read_column(rows.path, "test", "tgt")[:lines],
        target_tokens=tokens,
        padded_tokens=padded_tokens(sentences, tokens),
        sentences=len(sentences),
    )
    real_tokens = batch_tokens * tokens // text.padded_tokens if batch_tokens else tokens // processes
    _write(text, sentences, real_tokens, rows.path)
    return text


def _write(text: Text, sentences: list[tuple[Ids, Ids]], batch_tokens: int, rows: Path) -> None:
    """Write the words of all splits, the vocabulary, and whole batches of ids."""
    text.directory.mkdir(parents=True, exist_ok=True)
    vocabulary = Vocabulary.load(Path(text.sample.vocabulary))
    batches = [batch for epoch in range(EPOCHS) for batch in length_batches(sentences, batch_tokens, seed=epoch + 1)]
    write_words([pair for batch in batches for pair in batch], text.directory / "train")
    plain = [[[side.tolist() for side in pair] for pair in batch] for batch in batches]
    (text.directory / "batches.json").write_text(json.dumps(plain), encoding="utf-8")
    for split in ("dev", "test"):
        sources, targets = (read_column(rows, split, side) for side in ("src", "tgt"))
        most = len(text.sources) if split == "test" else None
        ids = zip(vocabulary.encode_source(sources, text.pair.tgt), vocabulary.encode_target(targets), strict=True)
        write_words(list(ids)[:most], text.directory / split)
    words = "".join(f"t{index}\n" for index in range(4, vocabulary.source_size))
    (text.directory / "vocab.txt").write_text(words, encoding="utf-8")


def length_batches(sentences: list[tuple[Ids, Ids]], tokens: int, seed: int) -> list[list[tuple[Ids, Ids]]]:
    """Return all sentences in shuffled batches of similar length, of about so many real target tokens.

    Sentences of equal length come in another order for each seed, so that batches differ between epochs.
    """
    random = np.random.default_rng(seed)
    shuffled = [sentences[row] for row in random.permutation(len(sentences))]
    shuffled.sort(key=lambda pair: (max(map(len, pair)), len(pair[0])))
    batches: list[list[tuple[Ids, Ids]]] = [[]]
    size = 0
    for pair in shuffled:
        if size >= tokens:
            batches.append([])
            size = 0
        batches[-1].append(pair)
        size += len(pair[1])
    return [batches[number] for number in random.permutation(len(batches))]
