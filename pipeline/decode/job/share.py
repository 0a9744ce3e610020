"""The share of one process in a job: its part of the model and its part of the batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pipeline.decode.experts.peers import ExpertPeers
from pipeline.decode.experts.placement import join_peers
from pipeline.decode.job.jobs import RoutingJob, TranslateJob
from pipeline.decode.model import load_model, outline
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest
from pipeline.model.transformer import Transformer
from pipeline.vocab.tokenizer import Vocabulary

T = TypeVar("T")


def load_share(
    job: TranslateJob | RoutingJob, place: Place, stop: StopRequest, *, longest: int, experts: str = ""
) -> tuple[Transformer, Vocabulary, ExpertPeers | None]:
    """Load the whole model, or this process's part of the experts. A pruned model is never cut.

    longest: tokens of the longest source; 0 if it is not known.
    experts: path of a pruning, or empty for all experts.
    Returns the model, its vocabulary, and the processes that have the other experts, or None for a whole model.
    """
    vocabulary, checkpoints = Vocabulary.load(Path(job.vocabulary)), Path(job.checkpoints)
    peers = None
    if not experts:
        whole = outline(checkpoints, vocabulary, job.decode)
        peers = join_peers(whole, job.decode, job.runtime, place, longest=longest, stop=stop, title=job.title)
    model = load_model(
        checkpoints,
        vocabulary,
        longest=longest,
        config=job.decode,
        device=place.device,
        mesh=None if peers is None else peers.mesh,
        experts=experts,
    )
    return model, vocabulary, peers


def share(batches: Sequence[T], place: Place, *, empty: T | None = None) -> list[T]:
    """Return the batches of this process: batch i · world + rank in round i.

    empty: a batch without sentences, for processes that must take part in every round. A process that has no batch in
        the last round gets it. None gives no batch.
    """
    own = list(batches[place.rank :: place.world])
    if empty is not None:
        own += [empty] * (-(-len(batches) // place.world) - len(own))
    return own
