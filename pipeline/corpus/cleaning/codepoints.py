"""Many texts as one array of code points, so that cleaning needs no Python loop over texts.

N texts, L code points of all of them, T tokens (words) of all of them.
"""

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpus.cleaning.characters import (
    COMPOSES,
    LETTER,
    MAX_MARKS,
    SEPARATOR,
    SPACE,
    characters,
    mix,
    stream_safe,
)

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]

_BASE = 0xD6E8FEB86659FD93  # base of the polynomial hashes; odd, so that it has an inverse modulo 2 ** 64
_INVERSE = pow(_BASE, -1, 1 << 64)


@dataclass(frozen=True)
class Texts:
    """Texts and their code points.

    codes: code points of all texts, [L].
    offsets: first code point of each text, and the end, [N + 1].
    """

    array: pa.StringArray
    codes: Codes
    offsets: Ints

    @classmethod
    def normalized(cls, array: pa.StringArray) -> "Texts":
        """Return the texts in NFC, with one space for every run of white space and control characters.

        No text begins or ends with a space. Runs of more than 30 marks are broken first, as UAX #15 says for
        stream-safe text.
        """
        array, codes, offsets = _composed(array)
        spaces = (characters().flags[codes] & SPACE) > 0
        if not spaces.any():
            return cls(array, codes, offsets)
        repeated = np.concatenate(([False], spaces[:-1]))
        repeated[offsets[:-1][offsets[:-1] < len(codes)]] = True
        dropped = spaces & repeated  # all spaces of a run but the first; at the start of a text the first too
        dropped[_trailing(spaces, offsets)] = True
        if not dropped.any() and np.array_equal(codes == SEPARATOR, spaces):
            return cls(array, codes, offsets)
        codes = np.where(spaces, np.uint32(SEPARATOR), codes)[~dropped]
        offsets = offsets - _sums(dropped, offsets, start=True)
        return cls(_encode(codes, offsets), codes, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def select(self, chosen: Bools) -> "Texts":
        """Return the texts where `chosen` is true. chosen: [N]."""
        codes = self.codes[np.repeat(chosen, self.lengths)]
        return Texts(self.array.filter(pa.array(chosen)), codes, np.append(0, np.cumsum(self.lengths[chosen])))

    @cached_property
    def flags(self) -> npt.NDArray[np.uint8]:
        """The bits of each code point, as in `pipeline.corpus.cleaning.characters`: [L]."""
        return characters().flags[self.codes]

    @cached_property
    def lengths(self) -> Ints:
        """The number of code points of each text: [N]."""
        return np.diff(self.offsets)

    def count(self, chosen: Bools) -> Ints:
        """Count the chosen code points of each text. chosen: [L]; result: [N]."""
        return _sums(chosen, self.offsets)

    def letter_shares(self) -> npt.NDArray[np.float64]:
        """Return the share of letters and marks among the characters that are not spaces, 0 for an empty text: [N]."""
        visible = self.lengths - self.count(self.codes == SEPARATOR)
        letters = self.count((self.flags & LETTER) > 0)
        shares: npt.NDArray[np.float64] = letters / np.maximum(visible, 1)
        return shares

    @cached_property
    def hashes(self) -> Hashes:
        """The hash of each text, not folded: [N]."""
        return _hash_runs(characters().hashes[self.codes], self.offsets)

    @cached_property
    def folded(self) -> "Folded":
        """The texts in the form in which they are compared."""
        return Folded.of(self)


@dataclass(frozen=True)
class Folded:
    """Texts in the form in which they are compared: case-folded NFKC, cut into words.

    Punctuation, spaces and control characters separate words. A letter of a script without spaces is a word.

    words: hash of each word, [T].
    word_offsets: where the words of each text begin, and the end, [N + 1].
    sizes: tenths of a word, [T]: 10 for a word, 5 or 2 for a letter of a script without spaces.
    essences: hash of each text without separators, [N].
    empty: true for texts of separators alone, [N].
    """

    words: Hashes
    word_offsets: Ints
    sizes: Ints
    essences: Hashes
    empty: Bools

    @classmethod
    def of(cls, texts: Texts) -> "Folded":
        """Fold some texts."""
        codes, offsets = _fold(texts.codes, texts.offsets)
        if len(rows := _folded_apart(texts)):
            codes, offsets = _recomposed(codes, offsets, rows)
        kept = codes != SEPARATOR
        starts_after_gap = np.ones(len(codes) + 1, dtype=bool)
        starts_after_gap[1:] = ~kept
        starts_after_gap[offsets[:-1]] = True  # the last offset is the end, beyond every character
        letters = codes[kept]
        offsets = offsets - _sums(~kept, offsets, start=True)
        letters_per_word = characters().letters_per_word[letters]
        unspaced = letters_per_word > 0
        begins = starts_after_gap[:-1][kept] | unspaced
        begins[1:] |= unspaced[:-1]
        starts = np.flatnonzero(begins)
        values = characters().hashes[letters]
        return cls(
            words=_hash_runs(values, np.append(starts, len(letters))),
            word_offsets=np.searchsorted(starts, offsets),
            sizes=10 // np.maximum(letters_per_word[starts], 1).astype(np.int64),
            essences=_hash_runs(values, offsets),
            empty=np.diff(offsets) == 0,
        )

    def shingles(self, size: int) -> tuple[Hashes, Ints]:
        """Return the hash of every run of `size` words within a text, and the number of its text: two arrays.

        A run begins at each word, and has as few entries as make `size` words by their sizes.
        """
        ends_of_words = np.concatenate(([0], np.cumsum(self.sizes)))
        stop = np.searchsorted(ends_of_words, ends_of_words[:-1] + 10 * size)  # end of the run that begins at each word
        text = np.repeat(np.arange(len(self.word_offsets) - 1), np.diff(self.word_offsets))
        whole = np.flatnonzero(stop <= self.word_offsets[1:][text])
        return _hash_windows(self.words, whole, stop[whole]), text[whole]


def _composed(array: pa.StringArray) -> tuple[pa.StringArray, Codes, Ints]:
    """Return the texts in NFC. Python normalises those that hold a character which NFC may change."""
    codes, offsets = _decode(array)
    flagged = (characters().flags[codes] & COMPOSES) > 0
    suspect = np.flatnonzero(_sums(flagged, offsets))
    marks = np.flatnonzero(flagged)
    thirty_after = marks[MAX_MARKS:][marks[MAX_MARKS:] - marks[:-MAX_MARKS] == MAX_MARKS]
    long = set((np.searchsorted(offsets, thirty_after, side="right") - 1).tolist())  # texts that may hold a long run
    changed = {}
    for index, text in zip(suspect.tolist(), array.take(pa.array(suspect)).to_pylist(), strict=True):
        composed = unicodedata.normalize("NFC", stream_safe(text) if index in long else text)
        if composed != text:
            changed[index] = composed
    if not changed:
        return array, codes, offsets
    mask = np.zeros(len(array), dtype=bool)
    mask[list(changed)] = True
    array = pc.replace_with_mask(array, pa.array(mask), pa.array(changed.values(), pa.string()))
    return array, *_decode(array)


def _decode(array: pa.StringArray) -> tuple[Codes, Ints]:
    _, positions, data = array.buffers()
    bounds = np.frombuffer(positions, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    text = str(memoryview(data)[bounds[0] : bounds[-1]], "utf-8") if data is not None else ""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    lengths = pc.utf8_length(array).to_numpy(zero_copy_only=False)
    return codes, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _encode(codes: Codes, offsets: Ints) -> pa.StringArray:
    data = codes.tobytes().decode("utf-32-le").encode()
    sizes = 1 + (codes >= 0x80).astype(np.int8) + (codes >= 0x800) + (codes >= 0x10000)
    bounds = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))[offsets].astype(np.int32)
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(bounds), pa.py_buffer(data))


def _fold(codes: Codes, offsets: Ints) -> tuple[Codes, Ints]:
    table = characters()
    lengths = table.fold_lengths[codes]
    starts = table.fold_starts[codes]
    odd = np.flatnonzero(lengths != 1)
    if not len(odd):
        return table.fold_codes[starts], offsets
    ends = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    index = np.repeat(starts, lengths)
    for shift in range(1, int(lengths.max())):  # the second character of an expansion, the third, …
        longer = odd[lengths[odd] > shift]
        index[ends[longer] + shift] += np.uint32(shift)
    return table.fold_codes[index], ends[offsets]


def _folded_apart(texts: Texts) -> Ints:
    """Return the texts in which folding changed a mark or the character before it, so that they may compose now."""
    table = characters()
    marks = np.flatnonzero(texts.flags & COMPOSES)
    near = texts.codes[np.stack((marks, np.maximum(marks - 1, 0)))]
    changed = (table.fold_codes[table.fold_starts[near]] != near).any(axis=0)
    return np.unique(np.searchsorted(texts.offsets, marks[changed], side="right") - 1)


def _recomposed(codes: Codes, offsets: Ints, rows: Ints) -> tuple[Codes, Ints]:
    """Return the folded texts, those of the given rows in NFC."""
    parts, end = [], 0
    lengths = np.diff(offsets)
    for row in rows.tolist():
        text = codes[offsets[row] : offsets[row + 1]].tobytes().decode("utf-32-le")
        composed = np.frombuffer(unicodedata.normalize("NFC", stream_safe(text)).encode("utf-32-le"), dtype=np.uint32)
        parts += [codes[end : offsets[row]], composed]
        end, lengths[row] = offsets[row + 1], len(composed)
    return np.concatenate((*parts, codes[end:])), np.append(0, np.cumsum(lengths))


def _trailing(spaces: Bools, offsets: Ints) -> Ints:
    """Return the first character of the last run of spaces, for every text that ends with a space."""
    ends = offsets[1:][np.diff(offsets) > 0]
    ends = ends[spaces[ends - 1]]
    solid = np.flatnonzero(~spaces)
    before = np.searchsorted(solid, ends)  # number of characters before the end that are no spaces
    starts = np.concatenate(([-1], solid))[before] + 1
    result: Ints = np.maximum(starts, offsets[np.searchsorted(offsets, ends) - 1])
    return result


def _sums(values: npt.NDArray[Any], offsets: Ints, *, start: bool = False) -> Ints:
    """Return sums of values between offsets, [N]. start: return the sum before each offset instead, [N + 1]."""
    total = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))[offsets]
    return total if start else np.diff(total)


def _hash_runs(values: Hashes, bounds: Ints) -> Hashes:
    """Return a hash of the values between each two bounds. It depends on their order, not on their position."""
    return mix(_hash_windows(values, bounds[:-1], bounds[1:]) + np.diff(bounds).astype(np.uint64))


def _hash_windows(values: Hashes, starts: Ints, stops: Ints) -> Hashes:
    """Return the sum of values[start + i] * _BASE ** i over each window, modulo 2 ** 64."""
    powers, inverses = _powers(len(values) + 1)
    total = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(values * powers[:-1], dtype=np.uint64)))
    return (total[stops] - total[starts]) * inverses[starts]


_tables: tuple[Hashes, Hashes] = (np.ones(1, dtype=np.uint64), np.ones(1, dtype=np.uint64))


def _powers(size: int) -> tuple[Hashes, Hashes]:
    """Return the first powers of _BASE and of its inverse, and keep them for the next call."""
    global _tables
    powers, inverses = _tables  # in one step, because another thread may replace the tables
    if len(powers) < size:
        powers, inverses = _tables = (_powers_of(_BASE, size), _powers_of(_INVERSE, size))
    return powers[:size], inverses[:size]


def _powers_of(base: int, size: int) -> Hashes:
    factors = np.full(size, base, dtype=np.uint64)
    factors[0] = 1
    result: Hashes = np.multiply.accumulate(factors)
    return result
