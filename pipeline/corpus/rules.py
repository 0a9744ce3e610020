"""Rules that judge a row by itself, for many rows at once; a rule is one function and one line of `row_rules`.

N rows; a rule gives True for those that it removes.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from pipeline.corpus.characters import DIGIT, PUNCTUATION, SENTENCE_END, SPACE, WIDE_END, characters
from pipeline.corpus.codepoints import Bools, Ints, Texts
from pipeline.corpus.config import Rules
from pipeline.corpus.held_out import HeldOut
from pipeline.corpus.language_id import unjudged, wrong_language
from pipeline.corpus.languages import LangPair
from pipeline.corpus.scripts import scripts_of, wrong_script

Rule = Callable[[Texts, Texts], Bools]
EMPTY, SCRIPT, LANGUAGE = "empty_side", "script", "language"
_FEW_DIGITS = 3


def empty_side(src: Texts, tgt: Texts) -> Bools:
    removed: Bools = (src.lengths == 0) | (tgt.lengths == 0)
    return removed


def row_rules(rules: Rules, pair: LangPair, held_out: HeldOut | None) -> dict[str, Rule]:
    """Rules by name, in the order in which they apply. held_out: the index of what is held out, if that is a rule."""
    chosen: dict[str, Rule] = {EMPTY: empty_side}
    if (most := rules.max_chars) is not None:
        chosen["too_long"] = lambda src, tgt: _longer(src, tgt) > most
    if (ratio := rules.max_length_ratio) is not None:
        chosen["length_ratio"] = lambda src, tgt: _longer(src, tgt) > ratio * _shorter(src, tgt)
    if rules.identical:
        chosen["identical"] = lambda src, tgt: src.hashes == tgt.hashes
    if (letters := rules.min_letters) is not None:
        chosen["few_letters"] = lambda src, tgt: np.minimum(src.letter_shares(), tgt.letter_shares()) < letters
    if (overlap := rules.min_digit_overlap) is not None:
        chosen["digits"] = lambda src, tgt: digit_overlap(src, tgt) < overlap
    if (difference := rules.max_end_difference) is not None:
        chosen["sentence_ends"] = lambda src, tgt: np.abs(sentence_ends(src) - sentence_ends(tgt)) > difference
    if (share := rules.min_script) is not None:
        chosen[SCRIPT] = lambda src, tgt: (
            wrong_script(src, pair.src, min_share=share) | wrong_script(tgt, pair.tgt, min_share=share)
        )
    if held_out is not None:
        chosen["held_out"] = lambda src, tgt: held_out.shares(src) | held_out.shares(tgt)
    if (language := rules.language) is not None:
        limits = asdict(language)
        chosen[LANGUAGE] = lambda src, tgt: (
            wrong_language(src, pair.src, **limits) | wrong_language(tgt, pair.tgt, **limits)
        )
    return chosen


def not_judged(rules: Rules, pair: LangPair) -> list[str]:
    """Which rules cannot judge which side of a pair, and why."""
    reasons = []
    for code in (pair.src, pair.tgt):
        if rules.min_script is not None and not scripts_of(code):
            reasons.append(f"{SCRIPT}: no script of {code} is known")
        if rules.language is not None and (reason := unjudged(code)):
            reasons.append(f"{LANGUAGE}: {reason}")
    return reasons


def judge(chosen: dict[str, Rule], src: Texts, tgt: Texts) -> Any:
    """Number of the first rule that removes each row, -1 where none does: int8 [N]."""
    verdict = np.full(len(src), -1, dtype=np.int8)
    for number, (name, rule) in enumerate(chosen.items()):
        left = verdict < 0
        if name == LANGUAGE and not left.all():  # slow: only of what the others left
            verdict[np.flatnonzero(left)[rule(src.select(left), tgt.select(left))]] = number
        else:
            verdict[rule(src, tgt) & left] = number
    return verdict


def digit_overlap(src: Texts, tgt: Texts) -> Any:
    """Digits 1 to 9 that both sides have, over those of the side with more; 1 where neither has _FEW_DIGITS. Float [N].

    Digits of every script count by their value; zeros do not, as 1.5 million is 1500000 elsewhere. Few digits are
    often words on the other side.
    """
    ours, theirs = _digits(src), _digits(tgt)
    most = np.maximum(ours.sum(axis=1), theirs.sum(axis=1))
    return np.where(most >= _FEW_DIGITS, np.minimum(ours, theirs).sum(axis=1) / np.maximum(most, 1), 1.0)


def sentence_ends(texts: Texts) -> Ints:
    """Runs of sentence-ending marks before a space, punctuation or the end of the text: [N]."""
    flags = texts.flags
    ends = (flags & SENTENCE_END) > 0
    following = np.append(flags[1:], np.uint8(SPACE))
    following[texts.offsets[1:][texts.lengths > 0] - 1] = SPACE
    closed = (following & (SPACE | PUNCTUATION)) > 0
    last_of_run = (following & SENTENCE_END) == 0
    return texts.count(ends & last_of_run & (closed | ((flags & WIDE_END) > 0)))


def _digits(texts: Texts) -> Ints:
    """How often each text has each of the digits 1 to 9: [N, 9]."""
    at = np.flatnonzero(texts.flags & DIGIT)
    row = np.searchsorted(texts.offsets, at, side="right") - 1
    value = characters().digits[texts.codes[at]]
    counts: Ints = np.bincount(row * 10 + value, minlength=10 * len(texts)).reshape(-1, 10)
    return counts[:, 1:]


def _longer(src: Texts, tgt: Texts) -> Ints:
    longer: Ints = np.maximum(src.lengths, tgt.lengths)
    return longer


def _shorter(src: Texts, tgt: Texts) -> Ints:
    shorter: Ints = np.minimum(src.lengths, tgt.lengths)
    return shorter
