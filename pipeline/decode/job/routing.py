"""Records of the experts that a model's tokens choose, on a split with known targets.

`python -m pipeline.decode.job.routing job.json` is one process of such a job, with RANK and WORLD_SIZE set.

G groups, S tokens of a group, K choices of a token, E experts, P language pairs.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.batch.assembly import assemble
from pipeline.batch.batch import Batch
from pipeline.batch.config import GroupShape
from pipeline.decode.job.jobs import RoutingJob
from pipeline.decode.job.piece_use import PieceUse, save_pieces
from pipeline.decode.job.share import load_share, share
from pipeline.files import write_atomically
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.model.moe.gates.expert_choice import Selection
from pipeline.model.moe.gates.token_choice import Gating
from pipeline.model.moe.routers import TaskRouter
from pipeline.model.moe.routing import Routing
from pipeline.model.moe.tokens import Tokens
from pipeline.model.transformer import Transformer
from pipeline.schema import build
from pipeline.stopping import Stopped
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.tokenizer import Vocabulary

MEASURES = ("chosen", "weight", "first", "first_weight")
_BATCH_TOKENS = 4096  # of both sides, with padding


class Recorder:
    """A context that records the choices of a model's routers, without padding.

    sums: float64 [P, 4, E] by layer, one row for each of MEASURES: how often an expert is chosen and the sum of its
        combine weights, then the same for first choices only.
    tokens: number of tokens [P] by layer.
    pieces: which pieces choose which experts, by layer.
    batch: the batch that the model gets next, on the CPU, with one sentence in each row.
    """

    batch: Batch

    def __init__(self, model: Transformer, pairs: Sequence[str]) -> None:
        """pairs: names by index."""
        num_pairs = len(pairs)
        self._layers = model.moe_layers()
        self.pieces = {
            name: PieceUse(
                name.partition(".")[0], layer.num_experts, pairs, quote=not isinstance(layer.router, TaskRouter)
            )
            for name, layer in self._layers.items()
        }
        device = model.target_embedding_VM.device
        self.sums = {
            name: torch.zeros(num_pairs, len(MEASURES), layer.num_experts, dtype=torch.float64, device=device)
            for name, layer in self._layers.items()
        }
        self.tokens = {name: torch.zeros(num_pairs, dtype=torch.int64, device=device) for name in self._layers}

    def __enter__(self) -> "Recorder":
        self._hooks = [layer.router.register_forward_hook(self._hook(name)) for name, layer in self._layers.items()]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _hook(self, name: str) -> Any:
        def add(_module: Any, arguments: tuple[Tensor, Tokens], routing: Routing) -> None:
            self._add(name, routing.decision, arguments[1])

        return add

    def _add(self, name: str, decision: Gating | Selection, tokens: Tokens) -> None:
        sums_PXE = self.sums[name]
        E, cells = decision.num_experts, tokens.num_pairs * decision.num_experts
        expert_GSK, asked_GSK, weight_GSK = choices(decision)
        self.pieces[name].add(self.batch, expert_GSK.cpu(), asked_GSK.cpu(), weight_GSK.cpu())
        cell_GSK = tokens.pair_GS.unsqueeze(-1) * E + expert_GSK
        asked_GSK = asked_GSK.double()
        weight_GSK = weight_GSK.double() * asked_GSK
        for index, value_GSK in enumerate((asked_GSK, weight_GSK, asked_GSK[..., :1], weight_GSK[..., :1])):
            cell_N = cell_GSK[..., : value_GSK.shape[-1]].flatten()
            sum_N = torch.zeros(cells, dtype=torch.float64, device=cell_N.device)
            sums_PXE[:, index] += sum_N.scatter_add_(0, cell_N, value_GSK.flatten()).view(-1, E)
        self.tokens[name] += torch.bincount(tokens.pair_GS[tokens.valid_GS], minlength=tokens.num_pairs)

    def to_json(self, pairs: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
        """Return layer -> pair -> `tokens` (a number) and each of MEASURES (a number for each expert)."""
        return {
            name: {
                pair: {
                    "tokens": int(self.tokens[name][index]),
                    **dict(zip(MEASURES, sums_PXE[index].tolist(), strict=True)),
                }
                for index, pair in enumerate(pairs)
            }
            for name, sums_PXE in self.sums.items()
        }


def choices(decision: Gating | Selection) -> tuple[Tensor, Tensor, Tensor]:
    """Return the experts of each token, best first, True where the token has that expert, and the weights, [G, S, K].

    If experts choose tokens, K is E, and a token's first choice is the expert that takes it with the largest weight.
    """
    if isinstance(decision, Gating):
        return decision.expert_GSK, decision.asked_GSK, decision.weight_GSK
    G, S = decision.valid_GS.shape
    token_V, expert_V = decision.token_X[decision.filled_X], decision.expert_X[decision.filled_X]
    weight_TE = decision.weight_X.new_full((G * S, decision.num_experts), -1.0)  # below the weight of any expert
    weight_TE[token_V, expert_V] = decision.weight_X[decision.filled_X]
    sorted_TE, expert_TE = weight_TE.sort(dim=-1, descending=True, stable=True)
    asked_TE, size = sorted_TE >= 0, (G, S, decision.num_experts)
    return expert_TE.view(size), asked_TE.view(size), sorted_TE.view(size)


def batches(data: Sequence[EncodedSplit]) -> Iterator[Batch]:
    """Yield batches with all sentence pairs, one in each row. Pairs of like length share a batch."""
    rows = [
        (max(int(source), int(target)), pair, index)
        for pair, split in enumerate(data)
        for index, (source, target) in enumerate(zip(split.source_lengths, split.target_lengths, strict=True))
    ]
    batch_rows: list[tuple[int, int, int]] = []
    for row in sorted(rows):
        if batch_rows and (len(batch_rows) + 1) * row[0] > _BATCH_TOKENS:
            yield _batch(batch_rows, data)
            batch_rows = []
        batch_rows.append(row)
    if batch_rows:
        yield _batch(batch_rows, data)


def _batch(rows: Sequence[tuple[int, int, int]], data: Sequence[EncodedSplit]) -> Batch:
    longest = rows[-1][0]
    shape = GroupShape(rows=len(rows), source=longest, target=longest)
    return assemble([[(pair, index)] for _, pair, index in rows], shape, data)


@torch.inference_mode()
def record(
    model: Transformer,
    pairs: Sequence[str],
    rounds: Sequence[Batch],
    check: Callable[[], None],
) -> Recorder:
    """Record the choices of the model's tokens in these batches.

    check: called before each batch. It raises Stopped to end the recording.
    """
    with Recorder(model, pairs) as recorder:
        for batch in rounds:
            check()
            recorder.batch = batch
            model(batch.to(model.target_embedding_VM.device), label_smoothing=0.0)
    return recorder


def in_order(pairs: Sequence[str], model: Transformer) -> list[str]:
    """Return the names of pairs in the order of their numbers in training, if a gate chooses experts by them."""
    return [pair.replace(":", "-") for pair in model.config.moe.pairs] or list(pairs)


def work(values: dict[str, Any], stop: StopRequest) -> None:
    """Record this process's share of the batches. values: of a RoutingJob."""
    job = build(RoutingJob, values)
    place = Place.take(job.runtime)
    split_of = {
        pair: EncodedSplit.open(Path(directory), job.split)
        for pair, directory in zip(job.pairs, job.encoded, strict=True)
    }
    data = list(split_of.values())
    longest = max(int(max(d.source_lengths.max(), d.target_lengths.max())) for d in data)
    model, peers = load_share(
        Path(job.checkpoints),
        Vocabulary.load(Path(job.vocabulary)),
        job.decode,
        job.runtime,
        place,
        longest=longest,
        stop=stop,
        title=job.title,
    )
    pairs = in_order(job.pairs, model)
    data = [split_of[pair] for pair in pairs]
    empty = None if peers is None else assemble([], GroupShape(rows=1, source=1, target=1), data)
    rounds = share(list(batches(data)), place, empty=empty)

    def check() -> None:
        if peers is not None:
            peers.any(busy=True)
        elif stop:
            raise Stopped(job.title)

    recorder = record(model, pairs, rounds, check)
    text = json.dumps(recorder.to_json(pairs))
    write_atomically(Path(job.out, f"routing.rank-{place.rank}.json"), text)
    save_pieces(Path(job.out), place.rank, recorder.pieces)


if __name__ == "__main__":
    run_process(work)
