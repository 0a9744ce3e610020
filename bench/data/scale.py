"""The sections and contenders of the benchmark, and its sizes."""

from dataclasses import dataclass

SECTIONS = ("cleaning", "encoding", "reading", "packing")
OURS, SAME = "ours", "ours, rules of both"
PEER, PEER_SAME = "opusfilter, nearest rules", "opusfilter, rules of both"
PEER_BARE = "opusfilter, rules of both, not normalising"
AGAINST = {PEER: OURS, PEER_SAME: SAME, PEER_BARE: SAME}  # the variant of ours that a peer is compared with
SENTENCEPIECE = "sentencepiece"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of a benchmark.

    rows: the most rows of the text that each section takes.
    rounds: rounds of every contender; the contenders take turns.
    threads: numbers of threads for encoding.
    pieces: pieces of each vocabulary.
    mixture_pieces, mixture_sample: pieces of the vocabulary for packing, and the rows that it is trained on.
    steps: steps that are packed.
    """

    rows: dict[str, int]
    rounds: int
    threads: tuple[int, ...] = (1, 2)
    pieces: int = 8000
    mixture_pieces: int = 16_000
    mixture_sample: int = 150_000
    steps: int = 400


FULL = Scale(rows={"cleaning": 200_000, "encoding": 200_000, "reading": 100_000, "packing": 200_000}, rounds=5)
QUICK = Scale(
    rows={"cleaning": 3000, "encoding": 3000, "reading": 500, "packing": 3000},
    rounds=1,
    pieces=1000,
    mixture_pieces=1000,
    mixture_sample=1000,
    steps=4,
)
