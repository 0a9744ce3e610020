"""What is measured, and how much of it."""

from dataclasses import dataclass

SECTIONS = ("cleaning", "encoding", "reading")
OURS, SAME = "ours", "ours, rules of both"
PEER, PEER_SAME = "opusfilter, nearest rules", "opusfilter, rules of both"
PEER_BARE = "opusfilter, rules of both, not normalising"
AGAINST = {PEER: OURS, PEER_SAME: SAME, PEER_BARE: SAME}  # which of ours each is compared with
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
