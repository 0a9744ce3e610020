"""Rules that judge single rows, for many rows at once.

A rule takes the source and the target texts of N rows, and returns a mask of the rows to remove: bool [N].
docs/extend.md says how to add a rule and how to change one.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from pipeline.corpus.cleaning.characters import DIGIT, PUNCTUATION, SENTENCE_END, SPACE, WIDE_END, characters
from pipeline.corpus.cleaning.codepoints import Bools, Ints, Texts
from pipeline.corpus.cleaning.held_out import HeldOut
from pipeline.corpus.cleaning.language_id import unjudged, wrong_language
from pipeline.corpus.cleaning.scripts import scripts_of, wrong_script
from pipeline.corpus.config import Rules
from pipeline.corpus.languages import LangPair

Rule = Callable[[Texts, Texts], Bools]
EMPTY, SCRIPT, HELD_OUT, LANGUAGE = "empty_side", "script", "held_out", "language"
_FEW_DIGITS = 3


def empty_side(src: Texts, tgt: Texts) -> Bools:
    removed: Bools = (src.lengths == 0) | (tgt.lengths == 0)
    return removed


def row_rules(rules: Rules, pair: LangPair, held_out: HeldOut | None) -> dict[str, Rule]:
    """Return the rules by name, in the order in which they apply.

    held_out: index of dev and test texts. A caller that only wants the names gives None.
    """
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
    if rules.held_out is not None:
        chosen[HELD_OUT] = partial(_shares, held_out)
    if (language := rules.language) is not None:
        limits = asdict(language)
        chosen[LANGUAGE] = lambda src, tgt: (
            wrong_language(src, pair.src, **limits) | wrong_language(tgt, pair.tgt, **limits)
        )
    return chosen


def not_judged(rules: Rules, pair: LangPair) -> list[str]:
    """Return the reasons why rules cannot judge a side of a pair."""
    reasons = []
    for code in (pair.src, pair.tgt):
        if rules.min_script is not None and not scripts_of(code):
            reasons.append(f"{SCRIPT}: no script of {code} is known")
        if rules.language is not None and (reason := unjudged(code)):
            reasons.append(f"{LANGUAGE}: {reason}")
    return reasons


def judge(chosen: dict[str, Rule], src: Texts, tgt: Texts) -> Any:
    """Return the number of the first rule that removes each row, -1 for none: int8 [N]."""
    verdict = np.full(len(src), -1, dtype=np.int8)
    for number, (name, rule) in enumerate(chosen.items()):
        left = verdict < 0
        if name == LANGUAGE and not left.all():  # it is slow, so it judges only rows that the others left
            verdict[np.flatnonzero(left)[rule(src.select(left), tgt.select(left))]] = number
        else:
            verdict[rule(src, tgt) & left] = number
    return verdict


def digit_overlap(src: Texts, tgt: Texts) -> Any:
    """Return the share of the digits 1 to 9 that both sides have, of those of the side with more: float [N].

    It is 1 if no side has _FEW_DIGITS digits, because a few digits are often words on the other side. Digits of every
    script count by their value. Zeros do not count, because 1.5 million may be written 1500000.
    """
    src_counts, tgt_counts = _digits(src), _digits(tgt)
    most = np.maximum(src_counts.sum(axis=1), tgt_counts.sum(axis=1))
    return np.where(most >= _FEW_DIGITS, np.minimum(src_counts, tgt_counts).sum(axis=1) / np.maximum(most, 1), 1.0)


def sentence_ends(texts: Texts) -> Ints:
    """Count the runs of sentence-ending marks before a space, punctuation or the end of the text: [N]."""
    flags = texts.flags
    ends = (flags & SENTENCE_END) > 0
    following = np.append(flags[1:], np.uint8(SPACE))
    following[texts.offsets[1:][texts.lengths > 0] - 1] = SPACE
    closed = (following & (SPACE | PUNCTUATION)) > 0
    last_of_run = (following & SENTENCE_END) == 0
    return texts.count(ends & last_of_run & (closed | ((flags & WIDE_END) > 0)))


def _digits(texts: Texts) -> Ints:
    """Count each of the digits 1 to 9 in each text: [N, 9]."""
    places = np.flatnonzero(texts.flags & DIGIT)
    row = np.searchsorted(texts.offsets, places, side="right") - 1
    value = characters().digits[texts.codes[places]]
    counts: Ints = np.bincount(row * 10 + value, minlength=10 * len(texts)).reshape(-1, 10)
    return counts[:, 1:]


def _shares(held_out: HeldOut | None, src: Texts, tgt: Texts) -> Bools:
    if held_out is None:
        raise ValueError("corpus.rules.held_out needs the index of the dev and test texts; set it to null without one")
    return held_out.shares(src) | held_out.shares(tgt)


def _longer(src: Texts, tgt: Texts) -> Ints:
    longer: Ints = np.maximum(src.lengths, tgt.lengths)
    return longer


def _shorter(src: Texts, tgt: Texts) -> Ints:
    shorter: Ints = np.minimum(src.lengths, tgt.lengths)
    return shorter
