"""Faults of translations that a score hides: another language, nothing, the source, loops, and a text that is cut off.

References are counted as well. Their rates are the floor, because a right translation can look like a fault: a name is
copied, a list repeats itself, and a short text may be taken for another language.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eval.language_id import unjudged, wrong_confidence
from eval.language_model import Floats, language_model
from eval.number_format import share
from eval.records.faults import FAULTS, LANGUAGE, REFERENCE, FaultRow, FaultyLine
from eval.records.run_record import Translation

# The rule of languages. It was chosen on the dev sets of 39 languages, and measured on their test sets, by
# `python -m bench.quality.identification`; bench/results/identification.csv has the rates.
MIN_LETTERS = 5  # a shorter text is not judged
MIN_PROBABILITY = 0.5  # least probability of the other language and those like it
MOST_WRONG = 0.01  # share of the references up to which the languages of a test set are judged

NGRAM, NGRAM_UNSPACED = 4, 8  # words, or characters of a script without spaces
MORE_OFTEN = 2  # a translation repeats itself if its most frequent n-gram occurs so many times more than the source's

LEVEL = 0.05  # of the test whether a system has more faults than the references

_LETTERS = r"[\p{L}\p{M}]"
# Characters of scripts without spaces: Thai to Lao, Burmese, Khmer, New Tai Lue, Chinese and Japanese.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1980-\u19ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNIT = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The faults of a system's translations.

    judged: number of lines whose language was judged.
    degrees: by fault, the degree (`FaultyLine`) of each faulty line, by its index.
    languages: the language that a text is taken for, by index, of the lines in a wrong one.
    """

    judged: int
    degrees: Mapping[str, Mapping[int, int]]
    languages: Mapping[int, str]


def pair_faults(
    pair: str, target: str, translations: Mapping[str, Sequence[Translation]]
) -> tuple[list[FaultRow], list[FaultyLine]]:
    """Count and list the faults of each system and of the references, which come last.

    Languages are not judged where the model does not know the target, and where it takes more than MOST_WRONG of the
    references, and more than one, for another language.

    target: code of the target language.
    translations: translations of the same test set by system.
    """
    lines = next(iter(translations.values()))
    references = [
        Translation(source=line.source, hypothesis=line.reference, reference=line.reference, score=None, at_limit=False)
        for line in lines
    ]
    reason = unjudged(target) or ""
    floor = find_faults(references, "" if reason else target)
    if (count := len(floor.degrees[LANGUAGE])) > max(1, MOST_WRONG * floor.judged):
        reason = f"{share(count / floor.judged)} of its references are taken for another language"
    findings = {system: find_faults(of_system, "" if reason else target) for system, of_system in translations.items()}
    findings[REFERENCE] = floor
    texts = {**translations, REFERENCE: references}
    rows = [_row(pair, system, texts[system], found_faults, reason) for system, found_faults in findings.items()]
    return rows, [
        line for system, found_faults in findings.items() for line in _lines(pair, system, found_faults, reason)
    ]


def find_faults(lines: Sequence[Translation], target: str) -> Findings:
    """Find the faults of translations. target: code of the target language; empty where languages are not judged."""
    degrees: dict[str, dict[int, int]] = {fault: {} for fault in FAULTS}
    for index, line in enumerate(lines):
        text = line.hypothesis
        if not text.strip():
            degrees["empty"][index] = len(line.source)
        elif _folded(text) == _folded(line.source) and any(map(str.isalpha, text)):
            degrees["copied"][index] = len(text)
        times = most_repeats(text)
        if times > MORE_OFTEN and times >= MORE_OFTEN + most_repeats(line.source):
            degrees["repeated"][index] = times
        if line.at_limit:
            degrees["truncated"][index] = len(text)
    judged, languages = _wrong_languages([line.hypothesis for line in lines], target) if target else (0, {})
    degrees[LANGUAGE] = {index: len(lines[index].hypothesis) for index in languages}
    return Findings(judged=judged, degrees=degrees, languages=languages)


def most_repeats(text: str) -> int:
    """Return how often the most frequent n-gram occurs: of NGRAM words, or of NGRAM_UNSPACED characters.

    The latter is for a text with more characters of scripts without spaces than words of others. N-grams may overlap.
    It is 1 for a text without a repetition, and for one that is too short to have an n-gram.
    """
    units = _UNIT.findall(text)
    if len(units) - len(set(units)) < MORE_OFTEN:  # whatever recurs so often has a unit that does
        return 1
    size = NGRAM_UNSPACED if 2 * len(_IS_UNSPACED.findall(text)) > len(units) else NGRAM
    return max(Counter(zip(*(units[start:] for start in range(size)), strict=False)).values(), default=1)


def surely_more(numbers: Set[int], reference: Set[int]) -> bool:
    """Tell if significantly more lines have a fault than those of `reference`, the faulty ones of the references.

    This is McNemar's exact test, two-sided, at LEVEL: it compares the lines that one of the two has and the other has
    not. With none on the other side, 6 lines are significant.
    """
    more, fewer = len(numbers - reference), len(reference - numbers)
    total = more + fewer
    ways = 2 * sum(math.comb(total, count) for count in range(fewer + 1))
    return more > fewer and ways / 2**total <= LEVEL


def count_letters(texts: Sequence[str]) -> npt.NDArray[np.int32]:
    """Count the letters and marks of each text."""
    counts: npt.NDArray[np.int32] = pc.count_substring_regex(pa.array(texts, pa.string()), _LETTERS).to_numpy()
    return counts


def identify(texts: Sequence[str]) -> Floats:
    """Return the probability of each language of the model for each text: [N, L]."""
    return language_model().probabilities(pc.utf8_normalize(pa.array(texts, pa.string()), form="NFC"))


def _wrong_languages(texts: Sequence[str], target: str) -> tuple[int, dict[int, str]]:
    """Return how many texts are long enough to be judged, and the languages of those in a wrong one, by index."""
    judged = np.flatnonzero(count_letters(texts) >= MIN_LETTERS)
    probability_NL = identify([texts[index] for index in judged.tolist()])
    wrong = np.flatnonzero(wrong_confidence(probability_NL, target) >= MIN_PROBABILITY)
    best = probability_NL[wrong].argmax(axis=1)
    labels = language_model().labels
    return len(judged), {int(judged[place]): labels[label] for place, label in zip(wrong, best, strict=True)}


def _row(pair: str, system: str, lines: Sequence[Translation], findings: Findings, reason: str) -> FaultRow:
    faulty = {index for fault, degrees in findings.degrees.items() if _counts(fault, reason) for index in degrees}
    recorded = all(line.at_limit is not None for line in lines)
    return FaultRow(
        pair=pair,
        system=system,
        n_test=len(lines),
        judged=findings.judged,
        wrong_language=len(findings.degrees[LANGUAGE]),
        empty=len(findings.degrees["empty"]),
        copied=len(findings.degrees["copied"]),
        repeated=len(findings.degrees["repeated"]),
        truncated=len(findings.degrees["truncated"]) if recorded else None,
        faulty=len(faulty),
        length_ratio=sum(len(line.hypothesis) for line in lines) / max(1, sum(len(line.reference) for line in lines)),
        not_judged=reason,
    )


def _lines(pair: str, system: str, findings: Findings, reason: str) -> list[FaultyLine]:
    return [
        FaultyLine(
            pair=pair,
            system=system,
            line=index + 1,
            fault=fault,
            degree=degree,
            language=findings.languages[index] if fault == LANGUAGE else "",
        )
        for fault, degrees in findings.degrees.items()
        if _counts(fault, reason)
        for index, degree in degrees.items()
    ]


def _counts(fault: str, reason: str) -> bool:
    """Tell if a fault counts. reason: why languages are not judged, empty where they are."""
    return fault != LANGUAGE or not reason


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
