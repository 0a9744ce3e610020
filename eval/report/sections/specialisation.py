"""The part of the section on routing that says what experts specialise in."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.language import text_direction
from eval.number_format import share
from eval.records.specialisation import Expert, LayerSpecialisation

CJK = "\u2e80"  # from here on, scripts without spaces between words
EXPLAINED_HEADS = ("Layer", "Language", "Piece", "Class of piece")


def specialisation_values(
    layers: Sequence[LayerSpecialisation], languages: Mapping[str, tuple[str, str]]
) -> dict[str, Any]:
    """Return the rows below EXPLAINED_HEADS, and the experts of each layer, for `routing_section.html.j2`.

    languages: source and target of each pair.
    """
    return {
        "explained": [[layer.name, *map(share, layer.information.values())] for layer in layers],
        "experts": {
            layer.name: [
                _expert(number, expert, languages, side=0 if layer.name.startswith("encoder") else 1)
                for number, expert in enumerate(layer.experts)
            ]
            for layer in layers
        },
    }


def _expert(number: int, expert: Expert, languages: Mapping[str, tuple[str, str]], *, side: int) -> dict[str, Any]:
    """Return the number of an expert, its pieces with their shares, and its quotes with language and direction.

    side: 0 for the source, 1 for the target.
    """
    quotes = []
    for pair, before, piece, after in expert.quotes:
        code, space = languages[pair][side], piece[: piece.startswith(" ")]
        texts = (before + space, piece.removeprefix(" "), after)
        quotes.append({"pair": pair, "lang": code, "dir": text_direction(code), "texts": texts})
    return {
        "number": number,
        "pieces": [(_spelled(piece), f"{100 * part:.0f} %") for piece, part in expert.pieces],
        "quotes": quotes,
    }


def _spelled(piece: str) -> str:
    """Return a piece as a reader knows it: one from the inside of a word begins with a hyphen."""
    inside = piece[0].isalpha() and piece[0] < CJK
    return f"-{piece}" if inside else piece.removeprefix("▁") or piece
