"""Augmentation: some training rows are changed as `batch.augment` says, anew each time that they are drawn.

A row is token ids here, so its text is decoded, changed by `pipeline.corpus.modifiers`, and encoded again.
The rows of a window are changed before they are packed, because packing needs their lengths. What changes is a function
of the seed and the window, as the window itself. So it is the same in every process and after an interruption.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eval.language import split_pair
from pipeline.batch.changed import CHANGED, TOO_LONG, UNCHANGED, ChangedRows, Ints, Tokens
from pipeline.batch.config import AUGMENTATIONS, MERGED, SUBWORDS, BatchConfig
from pipeline.corpus.languages import LangPair
from pipeline.corpus.modifiers import MODIFIERS, TextPair, merged
from pipeline.vocab.subwords import SubwordSampler
from pipeline.vocab.symbols import EOS, UNK
from pipeline.vocab.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pipeline.batch.assembly import Sentences

SIDES = (0, 1)


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row that was drawn for a change.

    tags: source and target tags at its beginning.
    pieces: source and target tokens between tags and EOS.
    """

    pair: int
    tags: tuple[Tokens, Tokens]
    pieces: tuple[Tokens, Tokens]

    @property
    def has_text(self) -> bool:
        """False if a side is empty, or has a character without a token, so that its text is not known."""
        return all(len(tokens) > 0 and not (tokens == UNK).any() for tokens in self.pieces)


class Augmentation:
    """Changes the rows of windows. data: the training rows of each pair, in the order of `pairs`."""

    def __init__(
        self,
        config: BatchConfig,
        pairs: Sequence[str],
        data: "Sequence[Sentences]",
        vocabulary: Vocabulary,
        *,
        seed: int,
    ) -> None:
        self.config, self.data, self.seed = config, data, seed
        self.pairs = [LangPair(*split_pair(name)) for name in pairs]
        self.kinds = [kind for kind in AUGMENTATIONS if kind in config.augment]  # in an order that no user chooses
        self._bounds = np.cumsum([config.augment[kind] for kind in self.kinds])
        self._models = (vocabulary.source_model, vocabulary.target_model)
        models = self._models[:1] if vocabulary.shared else self._models
        samplers = [SubwordSampler(model, alpha=config.subword_alpha, nbest=config.subword_nbest) for model in models]
        self._samplers = (samplers[0], samplers[-1])
        self._tags = {*vocabulary.tags.values(), *vocabulary.source_tags.values()}
        self._shared = vocabulary.shared

    def change(self, sentences: Ints, lengths: Ints, window: int) -> tuple[Ints, Ints, ChangedRows]:
        """Return the names and lengths of a window's rows after the change, and the rows that names refer to.

        sentences, lengths: names (pair, index) and tokens of source and target, [n, 2].
        """
        rng = np.random.default_rng([self.seed, 2, window])
        kinds = np.searchsorted(self._bounds, rng.random(len(sentences)), side="right")
        places = np.flatnonzero(kinds < len(self.kinds))
        kinds, seeds = kinds[places], rng.integers(1 << 62, size=len(places)).tolist()
        rows = [self._row(*name) for name in sentences[places].tolist()]
        partners = self._partners(rows, kinds)
        texts = self._changed_texts(rows, kinds, seeds, partners)
        new_tokens = self._encoded(rows, kinds, texts, seeds)
        limits = (self.config.max_source, self.config.max_target)
        outcome = np.array([_outcome(tokens, limits) for tokens in new_tokens], dtype=np.int64)
        names, lengths, kept = sentences.copy(), lengths.copy(), np.ones(len(sentences), dtype=bool)
        plain = [sentences[place : place + 1] for place in places.tolist()]
        for number, (place, tokens) in enumerate(zip(places.tolist(), new_tokens, strict=True)):
            names[place, 1] = -1 - number
            partner = partners.get(number)
            if tokens is not None and outcome[number] == CHANGED:
                lengths[place] = len(tokens[0]), len(tokens[1])
                if partner is not None:
                    plain[number] = sentences[[place, places[partner]]]
                    kept[places[partner]] = False
            elif partner is not None:
                outcome[partner] = outcome[number]
        changed = ChangedRows(
            kinds=self.kinds,
            kind=kinds,
            outcome=outcome,
            plain=plain,
            tokens=[
                tokens if number == CHANGED else None
                for tokens, number in zip(new_tokens, outcome.tolist(), strict=True)
            ],
        )
        return names[kept], lengths[kept], changed

    def _row(self, pair: int, index: int) -> _Row:
        sides = self.data[pair].source(index), self.data[pair].target(index)
        assert all(tokens[-1] == EOS for tokens in sides), (pair, index)
        num_tags = [self._num_tags(tokens, side) for side, tokens in enumerate(sides)]
        return _Row(
            pair=pair,
            tags=(sides[0][: num_tags[0]], sides[1][: num_tags[1]]),
            pieces=(sides[0][num_tags[0] : -1], sides[1][num_tags[1] : -1]),
        )

    def _num_tags(self, tokens: Tokens, side: int) -> int:
        """Return the number of tags at the beginning; a target model of its own has none."""
        if side == 1 and not self._shared:
            return 0
        num_tags = 0
        while int(tokens[num_tags]) in self._tags:
            num_tags += 1
        return num_tags  # EOS is no tag

    def _partners(self, rows: Sequence[_Row], kinds: npt.NDArray[Any]) -> dict[int, int]:
        """Return the row that each first of two merged rows takes after it: the next one of its pair, with its tags."""
        waiting: dict[tuple[Any, ...], int] = {}
        partners: dict[int, int] = {}
        for number, row in enumerate(rows):
            if self.kinds[kinds[number]] == MERGED:
                like = (row.pair, *(tuple(tags.tolist()) for tags in row.tags))
                first = waiting.pop(like, None)
                if first is None:
                    waiting[like] = number
                else:
                    partners[first] = number
        return partners

    def _changed_texts(
        self, rows: Sequence[_Row], kinds: npt.NDArray[Any], seeds: Sequence[int], partners: dict[int, int]
    ) -> list[TextPair | None]:
        """Return the new source and target of each row. None keeps the row, and the second of two merged ones."""
        numbers = [number for number, row in enumerate(rows) if row.has_text]
        sides = [
            self._models[side].decode([rows[number].pieces[side].tolist() for number in numbers], num_threads=1)
            for side in SIDES
            if numbers
        ]
        plain: dict[int, TextPair] = dict(zip(numbers, zip(*sides, strict=True), strict=True)) if numbers else {}
        texts: list[TextPair | None] = [None] * len(rows)
        for number, text in plain.items():
            kind = self.kinds[kinds[number]]
            if kind == SUBWORDS:
                texts[number] = text
            elif kind != MERGED:
                texts[number] = MODIFIERS[kind](*text, self.pairs[rows[number].pair], Random(seeds[number]))
            elif partners.get(number) in plain:
                texts[number] = merged(text, plain[partners[number]])
        return texts

    def _encoded(
        self,
        rows: Sequence[_Row],
        kinds: npt.NDArray[Any],
        texts: Sequence[TextPair | None],
        seeds: Sequence[int],
    ) -> list[tuple[Tokens, Tokens] | None]:
        """Return source and target of each row that has a text, as tokens with tags and EOS.

        None for a row without a text, and for one with a character that has no token.
        """
        new_tokens: list[tuple[Tokens, Tokens] | None] = [None] * len(rows)
        new_texts = {number: text for number, text in enumerate(texts) if text is not None}
        sampled = {number for number in new_texts if self.kinds[kinds[number]] == SUBWORDS}
        numbers = [number for number in new_texts if number not in sampled]
        sides = [
            self._models[side].encode([new_texts[number][side] for number in numbers], num_threads=1) for side in SIDES
        ]
        encoded = dict(zip(numbers, zip(*sides, strict=True), strict=True))
        for number, text in new_texts.items():
            if number in sampled:
                rng = Random(seeds[number])
                source, target = (
                    sampler.sample(of_side, rng) for sampler, of_side in zip(self._samplers, text, strict=True)
                )
            else:
                source, target = encoded[number]
            if source and target and UNK not in source and UNK not in target:
                tags = rows[number].tags
                new_tokens[number] = _framed(tags[0], source), _framed(tags[1], target)
        return new_tokens


def _outcome(tokens: tuple[Tokens, Tokens] | None, limits: tuple[int, int]) -> int:
    if tokens is None:
        return UNCHANGED
    fits = all(len(of_side) <= limit for of_side, limit in zip(tokens, limits, strict=True))
    return CHANGED if fits else TOO_LONG


def _framed(tags: Tokens, pieces: Sequence[int]) -> Tokens:
    return np.concatenate((tags.astype(np.int64), np.asarray(pieces, dtype=np.int64), [EOS]))
