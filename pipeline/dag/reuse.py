"""Checks of what a run takes from finished runs: of the vocabulary against the new text, and against the weights."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import Corpus, train_rows
from pipeline.train import retention
from pipeline.vocab.symbols import UNK

MOST_BYTES = 0.02  # share of the pieces of a text that may be single bytes
SAMPLE_ROWS = 1000  # training rows of each pair on which that share is measured

logger = logging.getLogger(__name__)


def check_tags(run: str, vocabulary: Artifact, corpus: Corpus) -> None:
    """Raise ValueError if the vocabulary of a run has no tag for a target language or a source of the corpus."""
    from pipeline.vocab.vocabulary import Vocabulary

    loaded = Vocabulary.load(vocabulary.path)
    remedy = "leave vocab.from_run out, so that a vocabulary is trained on all of this text"
    for pair in corpus.pairs:
        if pair.tgt not in loaded.tags:
            raise ValueError(
                f"vocab.from_run={run}: its vocabulary has no tag for {pair.tgt}, the target of {pair}, but for "
                f"{', '.join(loaded.tags)}; choose pairs into these, or {remedy}"
            )
        tags = {table.tag for table, _ in corpus.tables_of(pair, "train")} - {"", *loaded.source_tags}
        if tags:
            raise ValueError(
                f"vocab.from_run={run}: its vocabulary has no tag for {', '.join(sorted(tags))}, which marks a source "
                f"of {pair}, but for {', '.join(loaded.source_tags) or 'none'}; leave that source out, or {remedy}"
            )


def warn_of_bytes(run: str, vocabulary: Artifact, cleaned: Mapping[LangPair, Artifact]) -> None:
    """Warn of pairs whose text has many characters that the vocabulary of a run can only spell byte by byte."""
    from pipeline.vocab.sample import Sample, sample_rows
    from pipeline.vocab.vocabulary import Vocabulary

    loaded, rows = Vocabulary.load(vocabulary.path), train_rows(cleaned)
    for pair, artifact in cleaned.items():
        sampled = sample_rows(rows[pair], min(rows[pair], SAMPLE_ROWS), pair, seed=1)
        sample = Sample({pair: artifact.path}, {pair: sampled})
        sides = (("source", "src", loaded.source_model), ("target", "tgt", loaded.target_model))
        for side, column, model in sides:
            share = _share_of_bytes(model, list(sample.texts([column])))
            if share > MOST_BYTES:
                logger.warning(
                    "warning: vocab.from_run=%s: %.0f %% of the %s pieces of %s are single bytes, because the "
                    "vocabulary lacks their characters; sentences are longer, and learned worse, than with a "
                    "vocabulary of this text (without vocab.from_run)",
                    *(run, 100 * share, side, pair),
                )


def check_vocabulary_of(checkpoint: Path, vocabulary: Artifact) -> None:
    """Raise ValueError if the weights of a checkpoint belong to another vocabulary."""
    from pipeline.vocab.vocabulary import vocabulary_sha256

    sha256 = vocabulary_sha256(vocabulary.path)
    if retention.state(checkpoint).get("vocabulary", sha256) != sha256:
        raise ValueError(
            f"train.initialize_from: {checkpoint} was trained with another vocabulary; use that one, by "
            "vocab.from_run and the name of the run that has this model"
        )


def _share_of_bytes(model: Any, texts: Sequence[str]) -> float:
    """Return the share of the pieces of texts that are single bytes or unknown."""
    spelled = {index for index in range(model.get_piece_size()) if model.is_byte(index)} | {UNK}
    pieces = [piece for ids in model.encode(list(texts)) for piece in ids]
    return sum(piece in spelled for piece in pieces) / max(len(pieces), 1)
