"""What is measured, and how much of it."""

from dataclasses import dataclass

SECTIONS = ("cleaning", "encoding", "reading", "packing")
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
    mixture_pieces: int = 16_000  # of the vocabulary in which sentences are packed, and the rows that it is trained on
    mixture_sample: int = 150_000
    steps: int = 400  # packed


FULL = Scale(rows={"cleaning": 200_000, "encoding": 200_000, "reading": 100_000, "packing": 200_000}, rounds=5)
QUICK = Scale(
    rows={"cleaning": 3000, "encoding": 3000, "reading": 500, "packing": 3000},
    rounds=1,
    pieces=1000,
    mixture_pieces=1000,
    mixture_sample=1000,
    steps=4,
)
