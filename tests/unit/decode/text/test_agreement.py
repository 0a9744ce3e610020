"""The choice by minimum Bayes risk: what agrees most with the other translations comes first."""

from dataclasses import replace

import pytest

from eval.score.metrics import scorer_for
from pipeline.decode.config import DecodeConfig
from pipeline.decode.text.agreement import best_by_agreement
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from tests.unit.decode.conftest import DECODE
from tests.unit.decode.text.test_translator import LONG, TURKISH, lines, translate

MBR = DecodeConfig(beam=9, choose="mbr")
SAMPLED = {"search": "sample", "draws": 12, "choose": "mbr", "max_length_extra": 8}
TEXTS = ["open the file", "close the window", "open the files", "open a file", "the open file"]


def brute_force(texts, utility="chrf", target="en"):
    """Return the different texts by falling sum of sacreBLEU's scores against all, the earlier one first in a tie."""
    scorer = scorer_for(utility, target, by_sentence=True)
    sums = {text: sum(scorer.sentence_score(text, [other]).score for other in texts) for text in dict.fromkeys(texts)}
    return sorted(sums, key=lambda text: -round(sums[text], 9))


def places(texts, **changes):
    return best_by_agreement(texts, replace(MBR, **changes), "en")


@pytest.mark.parametrize("utility", ["chrf", "chrf++", "bleu"])
def test_the_best_are_those_of_a_brute_force_search(utility):
    chosen = places(TEXTS, n_best=5, utility=utility)
    assert [TEXTS[place] for place in chosen] == brute_force(TEXTS, utility)
    assert places(TEXTS, utility=utility) == chosen[:1]
    assert TEXTS[chosen[-1]] == "close the window"


def test_equal_texts_count_as_often_as_they_occur_and_are_returned_once():
    texts = [*TEXTS, "close the window", "close the window", "close the window"]
    assert places(TEXTS) != [1]
    assert places(texts) == [1]
    assert sorted(places(texts, n_best=9)) == [0, 1, 2, 3, 4]


def test_the_earlier_one_wins_a_tie():
    """Two translations agree equally with each other, because as many n-grams of both are the other's."""
    assert places(["ab cd", "cd ab"]) == [0]
    assert places(["cd ab", "ab cd"]) == [0]
    assert places(["x", "y", "z"], n_best=3) == [0, 1, 2]


def test_one_translation_is_chosen():
    assert places(["A window"] * 4) == [0]
    assert places([""] * 4) == [0]


def test_the_tokenizer_is_that_of_the_target_language():
    """The two sentences share no word between spaces, and most of their characters."""
    texts = ["file", "文件无法打开。", "文件不能打开。"]
    in_chinese, in_english = (best_by_agreement(texts, replace(MBR, utility="bleu"), code) for code in ("zh", "en"))
    assert (in_chinese, in_english) == ([1], [0])


@pytest.mark.parametrize("changes", [{"beam": 6, "choose": "mbr"}, SAMPLED, {**SAMPLED, "utility": "bleu"}])
def test_a_translator_chooses_among_all_hypotheses_of_the_search(model, vocabulary, changes):
    config = replace(DECODE, **changes)
    plain = replace(config, choose="likeliest", utility="chrf", n_best=config.hypotheses)

    def outcomes(settings):
        return translate(Translator(model, vocabulary, settings, max_source_tokens=64), lines(*TURKISH[:8]))

    moved = 0
    for chosen, candidates in zip(outcomes(replace(config, n_best=3)), outcomes(plain), strict=True):
        texts = [candidate.text for candidate in candidates.alternatives]
        scores = {candidate.text: candidate.score for candidate in reversed(candidates.alternatives)}
        assert len(texts) == config.hypotheses
        assert [alternative.text for alternative in chosen.alternatives] == brute_force(texts, config.utility)[:3]
        assert all(one.score == pytest.approx(scores[one.text], abs=1e-4) for one in chosen.alternatives)
        moved += chosen.text != texts[0]
    assert moved > 2


def test_a_choice_depends_on_the_seed_and_not_on_the_batch(model, vocabulary):
    def texts(numbers, **changes):
        config = replace(DECODE, **SAMPLED, **changes)
        batch = [Line(text=TURKISH[number], target="en", number=number) for number in numbers]
        return [
            outcome.text for outcome in translate(Translator(model, vocabulary, config, max_source_tokens=64), batch)
        ]

    together = texts(range(8))
    assert texts(range(8)) == together
    assert texts([5, 2], batch_tokens=100) == [together[5], together[2]]
    assert texts(range(8), seed=2) != together


def test_parts_of_a_long_line_are_chosen_one_by_one(model, vocabulary):
    translator = Translator(model, vocabulary, replace(DECODE, **SAMPLED), max_source_tokens=24)
    plan = translator.plan(lines(LONG))
    parts = sorted((part for batch in plan.batches for part in batch), key=lambda part: part.part)
    assert len(parts) > 2
    texts = [translator.texts(translator.search([part])[0])[0] for part in parts]
    (outcome,) = translate(translator, lines(LONG))
    assert outcome.text == " ".join(filter(None, texts))
