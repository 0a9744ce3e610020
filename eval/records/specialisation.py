"""Specialisation of a run's experts: pieces, quotes and the information of its file specialisation.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.records.scores import write_csv

SPECIALISATION = "specialisation.json"
QUOTES, QUOTES_OF_A_PIECE = 6, 2  # of an expert that a run has
VALUES = ("language", "piece", "class")
COLUMNS = ("run", "layer", "expert", "rank", "piece", "share")


@dataclass(frozen=True, kw_only=True)
class Expert:
    """Preferences of one expert on the development sets.

    pieces: pieces that choose it more often than others do, each with the share of its tokens that choose it.
    quotes: tokens to which it gives the largest weights: the pair, and the text before it, its own and after it.
    """

    pieces: tuple[tuple[str, float], ...]
    quotes: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True, kw_only=True)
class LayerSpecialisation:
    """Specialisation of a MoE layer's experts.

    information: by VALUES, how much of the entropy of the expert each explains, 0 to 1.
    """

    name: str
    information: Mapping[str, float]
    experts: tuple[Expert, ...]


def load_specialisation(run_dir: Path) -> list[LayerSpecialisation]:
    """Read specialisation.json; no layers if the run has no such file. Raises ValueError if it cannot be read."""
    path = run_dir / SPECIALISATION
    if not path.is_file():
        return []
    try:
        layers: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["layers"]
        return [
            LayerSpecialisation(
                name=name,
                information={value: float(layer["information"][value]) for value in VALUES},
                experts=tuple(map(_expert, layer["experts"])),
            )
            for name, layer in layers.items()
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error!r}); remove the run's directory and run it again") from error


def _expert(content: Mapping[str, Any]) -> Expert:
    return Expert(
        pieces=tuple((piece["text"], float(piece["share"])) for piece in content["pieces"]),
        quotes=tuple((q["pair"], q["before"], q["piece"], q["after"]) for q in content["quotes"]),
    )


def choose_quotes(quotes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first quotes of an expert: at most QUOTES, QUOTES_OF_A_PIECE of a piece, and none twice.

    Pairs with the same target language repeat its sentences in a decoder.
    """
    chosen: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for quote in quotes:
        text = (quote["before"], quote["piece"], quote["after"])
        of_piece = sum(piece == quote["piece"] for _, piece, _ in chosen)
        if text not in chosen and of_piece < QUOTES_OF_A_PIECE and len(chosen) < QUOTES:
            chosen[text] = quote
    return [*chosen.values()]


def save_pieces(path: Path, rows: Mapping[str, Sequence[LayerSpecialisation]]) -> None:
    """Write routing_pieces.csv, one line a run, layer, expert and piece, the most telling piece first."""
    cells = [
        (run, layer.name, str(number), str(rank), piece, f"{share:.4f}")
        for run, layers in rows.items()
        for layer in layers
        for number, expert in enumerate(layer.experts)
        for rank, (piece, share) in enumerate(expert.pieces, 1)
    ]
    write_csv(path, COLUMNS, cells)
