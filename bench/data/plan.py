"""What is measured, and how much of it."""

from dataclasses import dataclass

SECTIONS = ("cleaning", "encoding", "reading")
OURS, EVERY_RULE = "ours", "ours, every default rule"
PEER, PEER_BARE = "opusfilter", "opusfilter, not normalising"
SENTENCEPIECE = "sentencepiece"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """rows: most that each section takes of the text. rounds: of every contender, side by side in time."""

    rows: dict[str, int]
    rounds: int
    threads: tuple[int, ...] = (1, 2)  # of encoding
    pieces: int = 8000  # of each vocabulary


FULL = Scale(rows={"cleaning": 200_000, "encoding": 200_000, "reading": 100_000}, rounds=5)
QUICK = Scale(rows={"cleaning": 3000, "encoding": 3000, "reading": 500}, rounds=1, pieces=1000)
