"""The information of a value about the expert, against known distributions; pieces and quotes of an expert."""

import math

import numpy as np
import pytest

from pipeline.decode.experts.specialisation import FEWEST, QUOTES_OF_A_PIECE, describe_layer, information, piece_class
from pipeline.decode.job.piece_use import Quote

PIECES = ["<unk>", "<s>", "</s>", "▁the", "▁File", "ing", "▁", "42", "▁,", "<0x41>"]
SPECIAL = {0, 1, 2, 9}


def table(counts):
    """Return the columns of a matrix of counts: values, experts, counts."""
    matrix = np.array(counts)
    value_N, expert_N = matrix.nonzero()
    return value_N, expert_N, matrix[value_N, expert_N]


def test_information_by_hand():
    """Half of the tokens are of a value that determines the expert, half of one that says nothing."""
    many = 1_000_000  # no correction to speak of
    expert = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    conditional = 0.5 * math.log(2)
    value = [[2 * many, 0], [many, many]]
    assert information(*table(value)) == pytest.approx((expert - conditional) / expert, abs=1e-5)
    assert information(*table([[many, 0], [0, many]])) == pytest.approx(1.0)
    assert information(*table([[many, many], [many, many]])) == pytest.approx(0.0, abs=1e-5)
    assert information(*table([[5, 0], [7, 0]])) == 0, "one expert in use has no entropy"


def test_chance_is_no_information():
    """400 values of 25 tokens each, and 8 experts drawn by chance: without the correction it would be 7 %."""
    generator = np.random.default_rng(1)
    counts = generator.multinomial(25, [1 / 8] * 8, size=400)
    assert information(*table(counts)) < 0.01
    share = counts / counts.sum()
    plain = (share[share > 0] * np.log(share[share > 0])).sum() + math.log(400) + math.log(8)
    assert plain / math.log(8) > 0.06


@pytest.mark.parametrize(
    ("piece", "name"),
    [
        ("▁the", "word"),
        ("▁File", "capitalised word"),
        ("▁Привет", "capitalised word"),
        ("ing", "inside of a word"),
        ("文件", "inside of a word"),
        ("▁2.5", "number"),
        ("▁(", "punctuation"),
        ("▁", "punctuation"),
    ],
)
def test_classes_of_pieces(piece, name):
    assert piece_class(piece) == name
    assert piece_class(piece, special=True) == "tag, end or byte"


def counts_of(choices, tokens, num_experts=2):
    cells = {piece * (num_experts + 1) + expert: count for (piece, expert), count in choices.items()}
    cells |= {piece * (num_experts + 1) + num_experts: count for piece, count in tokens.items()}
    return np.array(sorted(cells)), np.array([cells[cell] for cell in sorted(cells)])


def test_an_expert_is_described_by_its_pieces_and_quotes():
    choices = {(3, 0): 40, (4, 1): 30, (5, 0): 20, (5, 1): 20, (7, 1): FEWEST - 1}
    tokens = {3: 40, 4: 60, 5: 40, 7: 20}
    quotes = [
        Quote(weight=0.9, pair="de-en", before=[3], piece=4, after=[5, 2]),
        Quote(weight=0.9, pair="fr-en", before=[3], piece=4, after=[5, 2]),
        *(Quote(weight=0.8, pair="fr-en", before=[7] * n, piece=4, after=[]) for n in range(QUOTES_OF_A_PIECE + 2)),
        Quote(weight=0.1, pair="de-en", before=[], piece=3, after=[8]),
    ]
    chosen = {"de-en": [60, 0], "fr-en": [0, 54]}
    layer = describe_layer(counts_of(choices, tokens), chosen, [[], quotes], PIECES, SPECIAL)
    first, second = layer["experts"]
    assert first["pieces"] == [{"text": "▁the", "share": 1.0}]
    preferred = [{"text": "▁File", "share": 0.5}, {"text": "ing", "share": 0.5}]  # 20 of 40, where 18.9 are expected
    assert second["pieces"] == preferred, "a piece that chose it four times is too rare"
    texts = [(q["weight"], q["before"] + "[" + q["piece"] + "]" + q["after"]) for q in second["quotes"]]
    assert texts == [(0.9, " the[ File]ing </s>"), (0.8, "[ File]"), (0.1, "[ the] ,")]
    assert layer["information"]["language"] == pytest.approx(1.0)
    assert 0.5 < layer["information"]["class"] <= layer["information"]["piece"] < 1
