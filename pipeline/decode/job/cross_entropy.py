"""Cross-entropies of given translations: how likely a trained model finds them.

`python -m pipeline.decode.job.cross_entropy job.json` is the one process of such a job, with RANK and WORLD_SIZE set.

B sentences of a batch, T target tokens.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.jobs import NATS, CrossEntropyJob
from pipeline.decode.model import load_model
from pipeline.files import remove_tree
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.live import is_live
from pipeline.model.transformer import Transformer
from pipeline.schema import build
from pipeline.stopping import Stopped
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.tokenizer import Vocabulary

PARTS = "parts"  # directory of a job until it is complete
_BATCH_TOKENS = 4096  # of the longer side, with padding
_PART_BATCHES = 500

Nats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def batches(data: EncodedSplit) -> Iterator[Ints]:
    """Yield the rows of each batch, the shortest first. Rows of a batch have like lengths."""
    longest = np.maximum(data.source_lengths, data.target_lengths).astype(np.int64)
    order = np.argsort(longest, kind="stable")
    start = 0
    for stop in range(1, len(order) + 1):
        if stop == len(order) or (stop + 1 - start) * longest[order[stop]] > _BATCH_TOKENS:
            yield order[start:stop]
            start = stop


@torch.inference_mode()
def cross_entropies(model: Transformer, data: EncodedSplit, rounds: Iterable[Ints]) -> Nats:
    """Return the mean of -log p of the target tokens of each row, EOS being one of them, in nats: [N].

    rounds: rows of each batch, which give the order of the result. Each row is alone in a row of the batch.
    """
    parts = [np.zeros(0)]
    for rows in rounds:
        lengths = data.target_lengths[rows]
        shape = GroupShape(rows=len(rows), source=int(data.source_lengths[rows].max()), target=int(lengths.max()))
        batch = assemble([[(0, int(row))] for row in rows], shape, [data])
        nll_BT = model(batch.to(model.target_embedding_VM.device), label_smoothing=0.0).nll_BT
        parts.append(nll_BT.double().sum(dim=1).cpu().numpy() / lengths)
    return np.concatenate(parts)


def score_in_parts(
    model: Transformer, data: EncodedSplit, directory: Path, watched: Callable[[Sequence[Ints]], Iterable[Ints]]
) -> Nats:
    """Return the cross-entropies of all rows, in their order: [N]. Parts that an earlier attempt scored are read.

    directory: gets a file for each part, of _PART_BATCHES batches.
    watched: called with the batches of a part. It yields them, and may raise Stopped.
    """
    directory.mkdir(exist_ok=True)
    rounds = list(batches(data))
    nats = np.full(len(data), np.nan)
    for start in range(0, len(rounds), _PART_BATCHES):
        part, path = rounds[start : start + _PART_BATCHES], directory / f"{start}.npy"
        if not path.exists():
            temporary = path.with_suffix(".tmp.npy")
            np.save(temporary, cross_entropies(model, data, watched(part)))
            temporary.replace(path)
        nats[np.concatenate(part)] = np.load(path)
    return nats


def work(values: dict[str, Any], stop: StopRequest) -> None:
    """Score all rows of a split and write them to `nats_per_token.npy`. values: of a CrossEntropyJob."""
    job = build(CrossEntropyJob, values)
    place = Place.take(job.runtime)
    data = EncodedSplit.open(Path(job.encoded), job.split)
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    vocabulary = Vocabulary.load(Path(job.vocabulary))
    model = load_model(Path(job.checkpoints), vocabulary, longest=longest, config=DecodeConfig(), device=place.device)

    def watched(rounds: Sequence[Ints]) -> Iterator[Ints]:
        quiet = not is_live(sys.stderr)
        for rows in tqdm(rounds, desc=job.title, position=job.slot, unit="batch", leave=False, disable=quiet):
            if stop:
                raise Stopped(job.title)
            yield rows

    nats = score_in_parts(model, data, Path(job.out, PARTS), watched)
    if not np.isfinite(nats).all():
        raise ValueError(
            f"{job.title}: a cross-entropy is not finite; change corpus.learned.seed, or make the models smaller"
        )
    np.save(Path(job.out, NATS), nats)
    remove_tree(Path(job.out, PARTS))


if __name__ == "__main__":
    run_process(work)
