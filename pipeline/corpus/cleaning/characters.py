"""Properties of Unicode characters as arrays over all code points, for work on many texts at once.

Everything is derived from Python's own `unicodedata`; a table is built once in a process, in about a tenth of a second.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

NUM_CODES = 0x110000
MAX_MARKS = 30  # most marks in a row of a stream-safe text (UAX #15)
SEPARATOR = 0x20  # replaces punctuation, spaces and invisible characters when texts are folded

# Bits of Characters.flags.
SPACE = 1  # white space, control characters and the byte order mark: normalisation makes each run one space
LETTER = 2  # letters and combining marks (vowel signs are marks)
DIGIT = 4
PUNCTUATION = 8
COMPOSES = 16  # normalisation to NFC, before or after folding, may change a text that holds the character
SENTENCE_END = 32  # . ? ! and the same marks of other scripts
WIDE_END = 64  # sentence ends after which no space is written

_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2F7FF), (0x2FA20, 0x3FFFD))
_HANGUL = (0xAC00, 0xD7A3)
# Blocks of scripts without spaces between words, by the number of letters and marks that make about one word: two in
# Chinese and Japanese, five in Thai, Lao, Burmese and Khmer.
_UNSPACED = {
    2: ((0x3005, 0x3007), (0x3040, 0x30FF), (0x31F0, 0x31FF), (0xF900, 0xFAFF), (0xFF66, 0xFF9D), *_IDEOGRAPHS),
    5: ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x19E0, 0x19FF)),
}
_ENDS = ".?!…\u0589\u061f\u06d4\u0964\u0965\u17d4\u17d5\u203c\u2047\u2048\u2049"
_WIDE_ENDS = "\u3002\uff0e\uff01\uff1f\uff61"
# Soft hyphen, joiners and marks of direction stand within words, so they do not separate them. Zero-width spaces
# (Khmer) and non-joiners (Persian) do.
_WITHIN_WORDS = "\u00ad\u061c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069"
_GRAPHEME_JOINER = "\u034f"  # invisible; normalisation does not reorder marks across it
_SCANNED = (
    (0x0000, 0x33FF),
    (0x4DC0, 0x4DFF),
    (0xA000, 0xABFF),
    (0xD7A4, 0x1FFFF),
    (0x2F800, 0x2FA1F),
    (0xE0000, 0xE01FF),
)


@dataclass(frozen=True)
class Characters:
    """Properties of all characters. Every array but `fold_codes` is indexed by code point.

    flags: bits, as listed at the top of this file.
    digits: value of a decimal digit of any script, else 0.
    letters_per_word: letters and marks of about one word in a script without spaces, else 0.
    fold_lengths, fold_starts, fold_codes: the folded form of a character c, by which texts are compared. It is
        fold_codes[fold_starts[c] : fold_starts[c] + fold_lengths[c]]: case-folded NFKC, or SEPARATOR.
    hashes: a random number for each character.
    """

    flags: npt.NDArray[np.uint8]
    digits: npt.NDArray[np.uint8]
    letters_per_word: npt.NDArray[np.uint8]
    fold_lengths: npt.NDArray[np.uint8]
    fold_starts: npt.NDArray[np.uint32]
    fold_codes: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint64]


@cache
def characters() -> Characters:
    """Return the tables, which are built once in a process."""
    flags = np.zeros(NUM_CODES, dtype=np.uint8)
    digits = np.zeros(NUM_CODES, dtype=np.uint8)
    folds: dict[int, str] = {}
    for start, stop in (*_IDEOGRAPHS, _HANGUL):
        flags[start : stop + 1] = LETTER
    separators = np.ones(NUM_CODES, dtype=bool)  # code points that are not assigned are invisible
    separators[flags == LETTER] = False
    seconds = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # jamo that join a Hangul syllable
    for start, stop in _SCANNED:
        for code in range(start, stop + 1):
            char = chr(code)
            category = unicodedata.category(char)
            flags[code] |= _flags(char, category)
            parts = unicodedata.decomposition(char).split()
            if parts and not parts[0].startswith("<"):
                flags[code] |= 0 if unicodedata.is_normalized("NFC", char) else COMPOSES
                seconds |= {int(part, 16) for part in parts[1:]}
            if char in _WITHIN_WORDS:
                folds[code] = ""
            if category[0] in "PZC":
                continue
            separators[code] = False
            digits[code] = unicodedata.digit(char, 0) if category == "Nd" else 0
            folded = _fold(char)
            if folded != char:
                folds[code] = folded
    flags[list(seconds)] |= COMPOSES
    narrow = [code for code, folded in folds.items() if folded and flags[ord(folded[0])] & COMPOSES]
    flags[narrow] |= COMPOSES  # characters that folding turns into a mark, such as the half-width voiced mark
    letters_per_word = np.zeros(NUM_CODES, dtype=np.uint8)
    for letters, blocks in _UNSPACED.items():
        for start, stop in blocks:
            letters_per_word[start : stop + 1] = np.where(flags[start : stop + 1] & LETTER, letters, 0)
    for ends, bits in ((_ENDS, SENTENCE_END), (_WIDE_ENDS, SENTENCE_END | WIDE_END)):
        flags[[ord(char) for char in ends]] |= bits
    lengths, starts, codes = _fold_tables(folds, separators)
    hashes = mix(np.arange(1, NUM_CODES + 1, dtype=np.uint64))
    return Characters(flags, digits, letters_per_word, lengths, starts, codes, hashes)


def stream_safe(text: str) -> str:
    """Return the text with a grapheme joiner after every 30 marks of a longer run, as UAX #15 says.

    Without a bound, normalisation takes time in the square of the length of a run.
    """
    return _long_runs().sub(rf"\g<0>{_GRAPHEME_JOINER}", text)


@cache
def _long_runs() -> re.Pattern[str]:
    """Return a pattern of 30 characters that begin with a mark in NFD, followed by another one."""
    spans: list[tuple[int, int]] = []
    for first, last in _SCANNED:
        for code in range(first, last + 1):
            if unicodedata.combining(unicodedata.normalize("NFD", chr(code))[0]):
                start = spans.pop()[0] if spans and spans[-1][1] == code - 1 else code
                spans.append((start, code))
    marks = "".join(f"{chr(start)}-{chr(end)}" for start, end in spans)
    return re.compile(f"[{marks}]{{{MAX_MARKS}}}(?=[{marks}])")


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hash each value with the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = values * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return result


def _flags(char: str, category: str) -> int:
    bits = SPACE if char.isspace() or category == "Cc" or char == "\ufeff" else 0
    bits |= LETTER if category[0] in "LM" else 0
    bits |= DIGIT if category == "Nd" else 0
    bits |= PUNCTUATION if category[0] == "P" else 0
    return bits | (COMPOSES if unicodedata.combining(char) else 0)


def _fold(char: str) -> str:
    """Return the folded form of a character, without its punctuation and spaces (as in ½ or ㈠)."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", char).casefold())
    return "".join(part for part in folded if unicodedata.category(part)[0] not in "PZC")


def _fold_tables(folds: dict[int, str], separators: npt.NDArray[np.bool_]) -> tuple[Any, Any, Any]:
    lengths = np.ones(NUM_CODES, dtype=np.uint8)
    starts = np.arange(NUM_CODES, dtype=np.uint32)  # a character stands for itself
    codes = np.arange(NUM_CODES, dtype=np.uint32)
    codes[separators] = SEPARATOR
    changed = np.array(list(folds), dtype=np.int64)
    lengths[changed] = [len(text) for text in folds.values()]
    ends = np.cumsum(lengths[changed], dtype=np.uint32)
    starts[changed] = NUM_CODES + ends - lengths[changed]
    text = "".join(folds.values())
    return lengths, starts, np.concatenate((codes, np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)))
