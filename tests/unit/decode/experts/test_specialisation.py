"""The information of a value about the expert, against known distributions; pieces and quotes of an expert."""

import math

import numpy as np
import pytest

from pipeline.decode.experts.specialisation import (
    FEWEST,
    QUOTES,
    QUOTES_OF_A_PIECE,
    Quote,
    best_quotes,
    describe_layer,
    information,
    piece_class,
)

PIECES = ["<unk>", "<s>", "</s>", "▁the", "▁File", "ing", "▁", "42", "▁,", "<0x41>"]
SPECIAL = {0, 1, 2, 9}


def table(counts):
    """Return the columns of a matrix of counts: values, experts, counts."""
    matrix = np.array(counts)
    value_N, expert_N = matrix.nonzero()
    return value_N, expert_N, matrix[value_N, expert_N]


def test_information_by_hand():
    """Half of the tokens have a value that determines the expert, half one that says nothing."""
    many = 20_000  # chance adds little
    expert = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    conditional = 0.5 * math.log(2)
    value = [[2 * many, 0], [many, many]]
    assert information(*table(value)) == pytest.approx((expert - conditional) / expert, abs=1e-3)
    assert information(*table([[many, 0], [0, many]])) == pytest.approx(1.0)
    assert information(*table([[many, many], [many, many]])) == pytest.approx(0.0, abs=1e-3)
    assert information(*table([[5, 0], [7, 0]])) == 0, "one expert in use has no entropy"
    assert information(*table(np.zeros((2, 2), int))) == 0


@pytest.mark.parametrize("tokens", [3, 10, 100])
def test_chance_is_no_information(tokens):
    """Values of few tokens each, and 32 experts drawn by chance, seem to decide most of the choice."""
    generator = np.random.default_rng(1)
    counts = generator.multinomial(tokens, [1 / 32] * 32, size=1000)
    assert information(*table(counts)) < 0.02
    share = counts / counts.sum()
    plain = (share[share > 0] * np.log(share[share > 0])).sum() + math.log(1000) + math.log(32)
    assert plain / math.log(32) > {3: 0.6, 10: 0.3, 100: 0.03}[tokens]


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


def counts_of(choices, num_experts=2):
    cells = {piece * num_experts + expert: count for (piece, expert), count in choices.items()}
    return np.array(sorted(cells)), np.array([cells[cell] for cell in sorted(cells)])


def test_an_expert_is_described_by_its_pieces_and_quotes():
    choices = {(3, 0): 40, (4, 0): 10, (4, 1): 30, (5, 0): 20, (5, 1): 20, (7, 1): FEWEST - 1}
    quotes = [
        Quote(weight=0.98765, pair="de-en", before=[3], piece=4, after=[5, 2]),
        Quote(weight=0.1, pair="de-en", before=[], piece=3, after=[8]),
    ]
    layer = describe_layer(counts_of(choices), {"de-en": [70, 0], "fr-en": [0, 54]}, [[], quotes], PIECES, SPECIAL)
    first, second = layer["experts"]
    assert first["pieces"] == [{"text": "▁the", "share": 1.0}]
    preferred = [{"text": "▁File", "share": 0.75}, {"text": "ing", "share": 0.5}]  # 20 of 40, where 17.4 are expected
    assert second["pieces"] == preferred, "a piece that chose it four times is too rare"
    texts = [(q["weight"], q["before"] + "[" + q["piece"] + "]" + q["after"]) for q in second["quotes"]]
    assert texts == [(0.9876, " the[ File]ing </s>"), (0.1, "[ the] ,")]
    assert layer["information"]["language"] == pytest.approx(1.0)
    assert 0.2 < layer["information"]["class"] <= layer["information"]["piece"] < 0.7


def test_quotes_are_the_heaviest_and_of_several_pieces():
    heavy = [Quote(weight=1.0, pair="de-en", before=[n], piece=3, after=[]) for n in range(3 * QUOTES_OF_A_PIECE)]
    light = [Quote(weight=0.5, pair="fr-en", before=[], piece=piece, after=[]) for piece in range(4, 4 + QUOTES)]
    best = best_quotes([*light, *heavy])
    assert [quote.piece for quote in best[: QUOTES_OF_A_PIECE + 1]].count(3) == QUOTES_OF_A_PIECE
    assert len(best) == QUOTES
    assert best == best_quotes([*reversed(heavy), *light]), "of equal weights the order does not decide"
    assert [quote.before for quote in best[:QUOTES_OF_A_PIECE]] != [[n] for n in range(QUOTES_OF_A_PIECE)]
