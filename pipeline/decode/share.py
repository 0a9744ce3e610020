"""What the processes of both kinds of translation jobs have in common: a translator, and their share of the batches."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline.decode.drops import leave_drops
from pipeline.decode.job import LinesJob, TranslateJob
from pipeline.decode.model import load_model, outline
from pipeline.decode.placement import join_peers
from pipeline.decode.search import Hypothesis
from pipeline.decode.text import Long
from pipeline.decode.translator import Part, Translator
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest
from pipeline.stopping import Stopped
from pipeline.vocab.tokenizer import Vocabulary

Batch = Sequence[Part]


def load_translator(
    job: TranslateJob | LinesJob, place: Place, stop: StopRequest, *, max_source_tokens: int = 0, long: Long
) -> Translator:
    """With the whole model, or with this process's part of the experts and the peers that have the others. What a
    pruning leaves of a model is not cut further."""
    vocabulary, checkpoints = Vocabulary.load(Path(job.vocabulary)), Path(job.checkpoints)
    peers = None
    if not job.experts:
        peers = join_peers(
            outline(checkpoints, vocabulary, job.decode),
            job.decode,
            job.runtime,
            place,
            longest=max_source_tokens,
            stop=stop,
            title=job.title,
        )
    model = load_model(
        checkpoints,
        vocabulary,
        longest=max_source_tokens,
        config=job.decode,
        device=place.device,
        mesh=None if peers is None else peers.mesh,
        experts=job.experts,
    )
    return Translator(model, vocabulary, job.decode, max_source_tokens=max_source_tokens, long=long, peers=peers)


def share(batches: Sequence[Batch], place: Place, *, together: bool) -> list[Batch]:
    """This process's batches: round i takes i·world + rank. together: every process has as many rounds, of which the
    last may be empty, since all must come to each."""
    mine = list(batches[place.rank :: place.world])
    if together:
        mine += [[]] * (-(-len(batches) // place.world) - len(mine))
    return mine


def translate_batches(
    translator: Translator,
    batches: Iterable[Batch],
    write: Callable[[Batch, list[dict[str, Any]]], None],
    *,
    stop: StopRequest,
    title: str,
) -> None:
    """Translate batch by batch; `write` gets each with text and score of its lines, none of which is in parts. Raises
    Stopped between two of them; peers do so in the middle of one, all at once."""
    for batch in batches:
        if stop and translator.peers is None:
            raise Stopped(title)
        best: list[Hypothesis] = [first for first, *_ in translator.search(batch)]
        texts = translator.texts(best)
        write(batch, [{"text": text, "score": round(found.score, 5)} for text, found in zip(texts, best, strict=True)])


def report(translator: Translator, place: Place, out: str) -> None:
    """Leave for the starter what a capacity dropped in this process's share, where one was asked for."""
    if translator.config.capacity_factor:
        leave_drops(translator.drops, Path(out, "log"), place.rank)
