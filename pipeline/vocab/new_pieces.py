"""Pieces of new languages for a SentencePiece model, which leave the segmentation of the other languages as it is.

A new piece either has a character that no old piece has, or it changes the segmentation of no sampled sentence of the
other languages. So the other languages keep their segmentation: every text of the old pieces' characters if the new
pieces are of the first kind, and the sampled text in any case.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2

from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.merges import learn_merges
from pipeline.vocab.pieces import NORMAL, Pieces
from pipeline.vocab.sample import Sample, allocate_lines, sample_rows
from pipeline.vocab.tokenizer import train_model

SIDES = {"shared": ("src", "tgt"), "source": ("src",), "target": ("tgt",)}
_UNCOUNTED = 4 + 256  # pieces of a model that is trained for an extension, which every model has: symbols and bytes

logger = logging.getLogger(__name__)


class NewText:
    """The training text of a run, told apart by whether its language is new to the vocabulary."""

    def __init__(self, config: VocabConfig, bitexts: Mapping[LangPair, Path]) -> None:
        self._config, self._bitexts = config, bitexts
        self._new = set(config.extend or ())

    def sampled(self, name: str, *, new: bool) -> Iterator[str]:
        """Yield sampled training text for the model of this name: of the new languages, or of the others."""
        for side in SIDES[name]:
            pairs = sorted(
                pair for pair in self._bitexts if ((pair.src if side == "src" else pair.tgt) in self._new) == new
            )
            rows = {pair: funnel(self._bitexts[pair])["train"]["kept"] for pair in pairs}
            lines = allocate_lines(rows, self._config.sample_lines, self._config.temperature)
            seed = self._config.seed
            chosen = {pair: sample_rows(rows[pair], lines[pair], pair, seed) for pair in pairs}
            if chosen:
                sample = Sample(self._bitexts, chosen).limited([side], self._config.sample_chars, seed)
                yield from sample.texts([side])


def with_new_pieces(config: VocabConfig, model: Pieces, text: NewText, name: str) -> Pieces:
    """Return the model with at most `vocab.extend_size` pieces of the new languages.

    A unigram model gets those of a model that is trained on the new text. A BPE model gets merges of its own pieces.
    The model is returned unchanged if the run has no text of new languages.

    name: key of SIDES.
    Raises ValueError if the size is too small for the characters of the new text.
    """
    if not config.extend_size or next(text.sampled(name, new=True), None) is None:
        return model
    new = text.sampled(name, new=True)
    scores = _merged_pieces(config, model, new) if model.is_bpe else _unigram_pieces(config, model, new)
    old_characters = model.characters
    foreign = {piece: score for piece, score in scores.items() if not old_characters.issuperset(piece)}
    familiar = {piece: score for piece, score in scores.items() if piece not in foreign}
    harmless = _without_effect(model, foreign, familiar, list(text.sampled(name, new=False)))
    added = {piece: score for piece, score in scores.items() if piece in foreign or piece in harmless}
    if model.is_bpe:
        added = _reachable(model, added, config.extend_size)
    logger.info(
        "vocabulary, %s: %d new pieces have a character that the vocabulary lacks, %d have not; %d others would change "
        "the segmentation of other languages",
        *(name, len(foreign.keys() & added), len(familiar.keys() & added), len(familiar) - len(harmless)),
    )
    return model.with_pieces(added)


def _unigram_pieces(config: VocabConfig, model: Pieces, texts: Iterator[str]) -> dict[str, float]:
    """Return the pieces of a unigram model of the new text that the old one lacks, with their scores."""
    rule = model.proto.normalizer_spec.name
    trained = sentencepiece_model_pb2.ModelProto.FromString(
        train_model(config, texts, config.extend_size, "vocab.extend_size", (), rule, uncounted=_UNCOUNTED)
    )
    return _comparable({piece.piece: piece.score for piece in trained.pieces if piece.type == NORMAL}, model)


def _merged_pieces(config: VocabConfig, model: Pieces, texts: Iterator[str]) -> dict[str, float]:
    """Return new characters and merges for a BPE model, with scores, more than `vocab.extend_size`.

    The scores are below those of old pieces, and fall in the order of merges. So old merges come first, as before. More
    are learned than are wanted, because those that would change other languages are left out, with all that is made
    of them.
    """
    size, coverage = config.extend_size, config.character_coverage
    names = learn_merges(model.processor(), texts, size, coverage, spare=size)
    lowest = min(model.scores.values())
    return {name: lowest - place for place, name in enumerate(names, start=1)}


def _reachable(model: Pieces, scores: Mapping[str, float], size: int) -> dict[str, float]:
    """Return the first `size` pieces that BPE can make of their characters, some of whose merges may be left out.

    They are fewer than `size` if one of them needs a piece after them.
    """
    first, reachable = len(model.rows), dict(scores)
    while True:
        names = [*reachable]
        rows = model.with_pieces(reachable).speller().encode(names)
        reached = [name for index, (name, row) in enumerate(zip(names, rows, strict=True), first) if row == [index]]
        reachable = {name: scores[name] for name in reached[:size]}
        if len(reachable) == len(names):
            return reachable


def _comparable(scores: Mapping[str, float], model: Pieces) -> dict[str, float]:
    """Return the pieces that a model lacks, with scores that compare with its own.

    Scores are log-probabilities, those of the new pieces in another text. In a mixture of both texts, in which each one
    has a share in proportion to its pieces, their ratio to the old ones changes by the ratio of these numbers. No score
    is below the lowest old one, which decides what SentencePiece takes for an unknown character.
    """
    old = model.scores
    shift, lowest = math.log(len(scores) / len(old)), min(old.values())
    names = {piece.piece for piece in model.proto.pieces}
    return {piece: max(score + shift, lowest) for piece, score in scores.items() if piece not in names}


def _without_effect(
    model: Pieces, foreign: Mapping[str, float], familiar: Mapping[str, float], texts: Sequence[str]
) -> dict[str, float]:
    """Return the pieces of `familiar` that change the segmentation of no text; none without a text to look at.

    foreign: pieces that are added in any case.
    """
    kept = dict(familiar) if texts else {}
    before, first = model.with_pieces(foreign).processor().encode(texts), len(model.rows) + len(foreign)
    while kept:
        processor = model.with_pieces({**foreign, **kept}).processor()
        rows = processor.encode(texts)
        changed = [row != old for row, old in zip(rows, before, strict=True)]
        texts, before, rows = (list(compress(items, changed)) for items in (texts, before, rows))
        if not texts:
            break
        guilty = {processor.id_to_piece(index) for ids in rows for index in ids if index >= first}
        if not guilty:  # a merge of BPE that led to an old piece
            spelled = ["".join(pieces) for pieces in processor.encode(texts, out_type=str)]
            guilty = {name for name in kept if any(name in text for text in spelled)}
        for name in guilty:
            del kept[name]
    return kept
