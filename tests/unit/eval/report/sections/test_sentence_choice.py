import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from eval.report.sections.sentence_choice import choose, legible_places, sentence_scores

REFERENCES = ["Open the selected document in a new window.", "Choose a colour for each cell of the table."]
HYPOTHESES = [["Open the document in the window.", "Choose the colour."], ["Press enter.", REFERENCES[1]]]


@pytest.mark.parametrize(("metric", "scorer"), [("chrf++", CHRF(word_order=2)), ("bleu", BLEU(effective_order=True))])
def test_sentences_score_as_sacrebleu_scores_them_one_by_one(metric: str, scorer: BLEU | CHRF) -> None:
    scores = sentence_scores(HYPOTHESES, REFERENCES, "en", metric)
    expected = [
        [scorer.sentence_score(line, [reference]).score for line, reference in zip(lines, REFERENCES, strict=True)]
        for lines in HYPOTHESES
    ]
    assert scores == pytest.approx(np.array(expected))


def test_short_long_and_repeated_references_are_left_out() -> None:
    references = ["one word", *REFERENCES, "x" * 201, REFERENCES[0]]
    assert legible_places(references, 2) == [1, 2]
    assert legible_places(references, 3) == [0, 1, 2, 3, 4]  # too few are legible: all may be shown


def test_each_kind_takes_what_is_not_taken_yet() -> None:
    places = [10, 11, 12, 13, 14, 15, 16]
    scores = np.array([[90, 50, 40, 80, 10, 2, 30], [90, 70, 40, 20, 12, 4, 30]], dtype=np.float64)
    # The middle is 13, which also differs most. Of the others, 11 differs most, 10 has the best mean, 15 the worst.
    assert choose(places, scores, 1) == {
        "evenly spaced": [13],
        "largest differences": [11],
        "best": [10],
        "worst": [15],
    }


def test_one_system_has_no_differences_and_a_small_set_no_more_than_it_has() -> None:
    assert choose([4, 7], np.array([[50.0, 60.0]]), 3) == {"evenly spaced": [4, 7]}
    assert choose([4, 7, 9], np.array([[50.0, 60.0, 70.0]]), 1) == {"evenly spaced": [7], "best": [9], "worst": [4]}
