"""Specialisation of a MoE layer's experts.

Recorded are how much the language, the piece and its class say about the expert, the pieces that choose an expert more
often than others do, and the text around the tokens with its largest weights.

N choices, of which each has an expert and a value (a piece, a class of pieces, a language pair).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.decode.job.piece_use import Quote

PIECES, FEWEST = 12, 5  # pieces of an expert that are named, and how often they choose it at least
QUOTES, QUOTES_OF_A_PIECE = 24, 2  # a report shows fewer, as it may not quote every pair

Ints = NDArray[np.int64]


def information(value_N: Ints, expert_N: Ints, count_N: Ints) -> float:
    """Return how much of the entropy of the expert the value explains, 0 to 1: the mutual information over the entropy.

    Both have the correction of Miller (1955) for what chance adds in a finite sample: the number of free cells over
    twice the number of observations. A layer that has one expert in use gives 0.

    value_N, expert_N, count_N: values, experts, and how often they occur together, in any order; every two once.
    """
    total = float(count_N.sum())
    if not total:
        return 0.0
    sums_V, sums_E = (np.bincount(places, weights=count_N) for places in (value_N, expert_N))
    joint = _entropy(count_N, total)
    entropy_V, entropy_E = _entropy(sums_V, total), _entropy(sums_E, total)
    mutual = entropy_V + entropy_E - joint
    return min(max(mutual, 0.0) / entropy_E, 1.0) if entropy_E > 1e-9 else 0.0


def _entropy(counts: NDArray[Any], total: float) -> float:
    shares = counts[counts > 0] / total
    return float(-(shares * np.log(shares)).sum()) + (len(shares) - 1) / (2 * total)


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
    chosen: Mapping[str, Sequence[float]],
    quotes: Sequence[Sequence[Quote]],
    pieces: Sequence[str],
    special: Collection[int],
) -> dict[str, Any]:
    """Return `information` about the expert of a layer by `language`, `piece` and `class`, and its `experts`.

    counts: as `PieceUse.counts` returns them.
    chosen: choices of each expert, by language pair.
    quotes: of each expert, in any order.
    pieces: of the vocabulary of the layer's side.
    special: ids of tags, ends of sentences and bytes.
    """
    num_experts = len(quotes)
    cell_N, count_N = counts
    piece_N, expert_N = np.divmod(cell_N, num_experts + 1)
    is_choice_N = expert_N < num_experts
    tokens = dict(zip(piece_N[~is_choice_N].tolist(), count_N[~is_choice_N].tolist(), strict=True))
    piece_N, expert_N, count_N = piece_N[is_choice_N], expert_N[is_choice_N], count_N[is_choice_N]
    of_class = {int(piece): piece_class(pieces[piece], special=piece in special) for piece in np.unique(piece_N)}
    classes = sorted(set(of_class.values()))
    by_class: Counter[tuple[int, int]] = Counter()
    for piece, expert, count in zip(piece_N.tolist(), expert_N.tolist(), count_N.tolist(), strict=True):
        by_class[classes.index(of_class[piece]), expert] += count
    pair_PE = np.array(list(chosen.values()), dtype=np.int64).reshape(len(chosen), num_experts)
    pair_N, pair_expert_N = pair_PE.nonzero()
    return {
        "information": {
            "language": round(information(pair_N, pair_expert_N, pair_PE[pair_N, pair_expert_N]), 4),
            "piece": round(information(piece_N, expert_N, count_N), 4),
            "class": round(information(*_columns(by_class)), 4),
        },
        "experts": [
            {"pieces": of_expert, "quotes": _legible(quotes[expert], pieces, special)}
            for expert, of_expert in enumerate(_preferred(piece_N, expert_N, count_N, num_experts, pieces, tokens))
        ],
    }


def _columns(cells: Mapping[tuple[int, int], int]) -> tuple[Ints, Ints, Ints]:
    rows = np.array([(*cell, count) for cell, count in cells.items()], dtype=np.int64).reshape(-1, 3)
    return rows[:, 0], rows[:, 1], rows[:, 2]


def _preferred(
    piece_N: Ints, expert_N: Ints, count_N: Ints, num_experts: int, pieces: Sequence[str], tokens: Mapping[int, int]
) -> list[list[dict[str, Any]]]:
    """Return for each expert the pieces that add most to the mutual information of piece and expert.

    A piece has its `text`, and the `share` of its tokens that choose the expert.
    """
    total = float(count_N.sum())
    of_piece, of_expert = np.bincount(piece_N, weights=count_N), np.bincount(expert_N, weights=count_N)
    expected_N = of_piece[piece_N] * of_expert[expert_N] / max(total, 1.0)
    gain_N = count_N * np.log(count_N / expected_N)
    preferred: list[list[dict[str, Any]]] = [[] for _ in range(num_experts)]
    for place in np.lexsort((piece_N, -gain_N)).tolist():
        of_this = preferred[int(expert_N[place])]
        if gain_N[place] > 0 and count_N[place] >= FEWEST and len(of_this) < PIECES:
            piece = int(piece_N[place])
            of_this.append({"text": pieces[piece], "share": round(float(count_N[place]) / tokens[piece], 4)})
    return preferred


def _legible(quotes: Sequence[Quote], pieces: Sequence[str], special: Collection[int]) -> list[dict[str, Any]]:
    """Return the quotes with the largest weights as texts, at most two of a piece and none twice.

    The three texts of a quote follow each other without a space between them. Tags and ends of sentences stay in them.
    """

    def text(ids: Sequence[int]) -> str:
        return "".join(f" {pieces[i]}" if i in special else pieces[i].replace("▁", " ") for i in ids)

    texts = {(-q.weight, q.pair, text(q.before), text([q.piece]), text(q.after)) for q in quotes}
    chosen: list[dict[str, Any]] = []
    of_piece: Counter[str] = Counter()
    known_texts: set[tuple[str, str, str]] = set()  # in a decoder, pairs have the same text
    for weight, pair, before, piece, after in sorted(texts):
        is_new = (before, piece, after) not in known_texts
        if is_new and of_piece[piece] < QUOTES_OF_A_PIECE and len(chosen) < QUOTES:
            of_piece[piece] += 1
            known_texts.add((before, piece, after))
            chosen.append({"weight": -weight, "pair": pair, "before": before, "piece": piece, "after": after})
    return chosen
