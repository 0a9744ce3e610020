"""Specialisation of a MoE layer's experts. Free of torch.

Recorded are how much the language, the piece and its class say about the expert, the pieces that choose an expert more
often than others do, and the text around the tokens with its largest weights.

N different pairs of a value (a piece, a class of pieces, a language pair) and the expert of a token's first choice.
"""

import math
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PIECES, FEWEST = 12, 5  # pieces of an expert that are named, and how many of their tokens choose it at least
QUOTES, QUOTES_OF_A_PIECE = 64, 8  # of an expert; a report shows fewer, and may not quote every pair
SHUFFLES, SEED = 4, 1

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A token and its neighbours in a development sentence, as ids of pieces.

    weight: combine weight of the expert that has this token.
    pair: name of its language pair.
    """

    weight: float
    pair: str
    before: list[int]
    piece: int
    after: list[int]


def best_quotes(quotes: Sequence[Quote]) -> list[Quote]:
    """Return the quotes with the largest weights, the largest first: at most QUOTES, and QUOTES_OF_A_PIECE of a piece.

    Of equal weights a checksum decides, so that neither short sentences nor some pairs come first.
    """
    of_piece: Counter[int] = Counter()
    best: list[Quote] = []
    for quote in sorted(quotes, key=lambda quote: (-quote.weight, _checksum(quote))):
        if of_piece[quote.piece] < QUOTES_OF_A_PIECE and len(best) < QUOTES:
            of_piece[quote.piece] += 1
            best.append(quote)
    return best


def _checksum(quote: Quote) -> int:
    return zlib.crc32(repr((quote.pair, quote.before, quote.piece, quote.after)).encode())


def information(value_N: Ints, expert_N: Ints, count_N: Ints) -> float:
    """Return how much of the expert's entropy the value explains: 1 if it decides the expert, 0 if it says nothing.

    This is (I - C) / (H - C) with the mutual information I of value and expert, the entropy H of the expert, and the
    mean C of I where the experts of all tokens are shuffled. Values with few tokens have a large I by chance alone.
    With one expert in use it is 0.

    value_N, expert_N, count_N: values, experts, and the tokens that have both, each pair of value and expert once.
    """
    generator = np.random.default_rng(SEED)
    value_T, expert_T = np.repeat(value_N, count_N), np.repeat(expert_N, count_N)
    entropy = _entropy(np.bincount(expert_T)) if len(expert_T) else 0.0
    if entropy < 1e-9:
        return 0.0
    chance = sum(_mutual(value_T, generator.permutation(expert_T)) for _ in range(SHUFFLES)) / SHUFFLES
    explained = (_mutual(value_T, expert_T) - chance) / max(entropy - chance, 1e-9)
    return min(max(explained, 0.0), 1.0)


def _mutual(value_T: Ints, expert_T: Ints) -> float:
    _, joint = np.unique(value_T * (int(expert_T.max()) + 1) + expert_T, return_counts=True)
    return _entropy(np.bincount(value_T)) + _entropy(np.bincount(expert_T)) - _entropy(joint)


def _entropy(counts: Ints) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def piece_class(piece: str, *, special: bool = False) -> str:
    """Return the class of a SentencePiece piece. special: it is a tag, an end of sentence or a byte."""
    text = piece.removeprefix("▁")
    if special:
        return "tag, end or byte"
    if any(character.isnumeric() for character in text):
        return "number"
    if not any(character.isalpha() for character in text):
        return "punctuation"
    if not piece.startswith("▁"):
        return "inside of a word"
    return "capitalised word" if text[0].isupper() else "word"


def describe_layer(
    counts: tuple[Ints, Ints],
    chosen_first: Mapping[str, Sequence[float]],
    quotes: Sequence[Sequence[Quote]],
    pieces: Sequence[str],
    special: Collection[int],
) -> dict[str, Any]:
    """Return the `information` of language, piece and class about the first choice in a layer, and its `experts`.

    counts: as `PieceUse.counts` returns them.
    chosen_first: tokens that choose each expert first, by language pair.
    quotes: of each expert.
    pieces: of the vocabulary of the layer's side.
    special: ids of tags, ends of sentences and bytes.
    """
    num_experts = len(quotes)
    cell_N, count_N = counts
    piece_N, expert_N = np.divmod(cell_N, num_experts)
    names = [piece_class(pieces[piece], special=piece in special) for piece in piece_N.tolist()]
    classes = sorted({*names})
    class_N = np.array([classes.index(name) for name in names], dtype=np.int64)
    pair_PE = np.array(list(chosen_first.values()), dtype=np.int64).reshape(len(chosen_first), num_experts)
    pair_N, pair_expert_N = pair_PE.nonzero()
    return {
        "information": {
            "language": round(information(pair_N, pair_expert_N, pair_PE[pair_N, pair_expert_N]), 4),
            "piece": round(information(piece_N, expert_N, count_N), 4),
            "class": round(information(class_N, expert_N, count_N), 4),
        },
        "experts": [
            {"pieces": preferred, "quotes": [_as_text(quote, pieces, special) for quote in of_expert]}
            for preferred, of_expert in zip(
                _preferred(piece_N, expert_N, count_N, num_experts, pieces), quotes, strict=True
            )
        ],
    }


def _preferred(
    piece_N: Ints, expert_N: Ints, count_N: Ints, num_experts: int, pieces: Sequence[str]
) -> list[list[dict[str, Any]]]:
    """Return for each expert the pieces that add most to the mutual information of piece and expert.

    A piece has its `text`, and the `share` of its tokens that choose the expert first.
    """
    of_piece, of_expert = np.bincount(piece_N, weights=count_N), np.bincount(expert_N, weights=count_N)
    expected_N = of_piece[piece_N] * of_expert[expert_N] / max(float(count_N.sum()), 1.0)
    gain_N = count_N * np.log(count_N / expected_N)
    preferred: list[list[dict[str, Any]]] = [[] for _ in range(num_experts)]
    for place in np.lexsort((piece_N, -gain_N)).tolist():
        of_this = preferred[int(expert_N[place])]
        if gain_N[place] > 0 and count_N[place] >= FEWEST and len(of_this) < PIECES:
            piece = int(piece_N[place])
            of_this.append({"text": pieces[piece], "share": round(float(count_N[place] / of_piece[piece]), 4)})
    return preferred


def _as_text(quote: Quote, pieces: Sequence[str], special: Collection[int]) -> dict[str, Any]:
    """Return a quote with texts, which follow each other without a space. Tags and ends of sentences stay in them."""

    def text(ids: Sequence[int]) -> str:
        return "".join(f" {pieces[i]}" if i in special else pieces[i].replace("▁", " ") for i in ids)

    texts = {"before": text(quote.before), "piece": text([quote.piece]), "after": text(quote.after)}
    return {"weight": math.floor(quote.weight * 1e4) / 1e4, "pair": quote.pair, **texts}
