"""The share of one process in a job: its part of the model and its part of the batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.peers import ExpertPeers
from pipeline.decode.experts.placement import Stop, join_peers
from pipeline.decode.model import load_ensemble, load_model, outline
from pipeline.decode.search.ensemble import Ensemble
from pipeline.jobs.device import Place
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.transformer import Transformer
from pipeline.vocab.tokenizer import Vocabulary

T = TypeVar("T")


def load_share(
    checkpoints: Path,
    vocabulary: Vocabulary,
    config: DecodeConfig,
    runtime: RuntimeConfig,
    place: Place,
    *,
    longest: int,
    experts: str = "",
    stop: Stop,
    title: str,
) -> tuple[Transformer, ExpertPeers | None]:
    """Load the whole model, or this process's part of the experts. A pruned model is never cut.

    longest: tokens of the longest source; 0 if it is not known.
    experts: path of a pruning, or empty for all experts.
    stop, title: as in `join_peers`.
    Returns the model, and the processes that have the other experts, or None for a whole model.
    """
    peers = None
    if not experts:
        whole = outline(checkpoints, vocabulary, config)
        peers = join_peers(whole, config, runtime, place, longest=longest, stop=stop, title=title)
    model = load_model(
        checkpoints,
        vocabulary,
        longest=longest,
        config=config,
        device=place.device,
        mesh=None if peers is None else peers.mesh,
        experts=experts,
    )
    return model, peers


def load_translating(
    checkpoints: Sequence[Path],
    vocabulary: Vocabulary,
    config: DecodeConfig,
    runtime: RuntimeConfig,
    place: Place,
    *,
    longest: int,
    experts: str = "",
    stop: Stop,
    title: str,
) -> tuple[Transformer | Ensemble, ExpertPeers | None]:
    """Load the models of several runs, which are whole in every process, or what `load_share` loads of one run."""
    if len(checkpoints) > 1:
        return load_ensemble(checkpoints, vocabulary, longest=longest, config=config, device=place.device), None
    (path,) = checkpoints
    return load_share(
        path, vocabulary, config, runtime, place, longest=longest, experts=experts, stop=stop, title=title
    )


def share(batches: Sequence[T], place: Place, *, empty: T | None = None) -> list[T]:
    """Return the batches of this process: batch i · world + rank in round i.

    empty: a batch without sentences, for processes that must take part in every round. A process that has no batch in
        the last round gets it. None gives no batch.
    """
    own = list(batches[place.rank :: place.world])
    if empty is not None:
        own += [empty] * (-(-len(batches) // place.world) - len(own))
    return own
