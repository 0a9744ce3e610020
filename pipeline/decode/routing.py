"""Which experts a model's tokens choose, recorded on a split whose targets are given:
`python -m pipeline.decode.routing job.json` with RANK and WORLD_SIZE set.

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
from pipeline.decode.job import RoutingJob
from pipeline.decode.model import load_model, outline
from pipeline.decode.placement import join_peers
from pipeline.files import write_atomically
from pipeline.jobs.device import Place
from pipeline.jobs.process import StopRequest, run_process
from pipeline.model.moe.gates.expert_choice import Selection
from pipeline.model.moe.gates.token_choice import Gating
from pipeline.model.moe.routers import Routing
from pipeline.model.moe.tokens import Tokens
from pipeline.model.transformer import Transformer
from pipeline.schema import build
from pipeline.stopping import Stopped
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.tokenizer import Vocabulary

MEASURES = ("chosen", "weight", "first", "first_weight")
_BATCH_TOKENS = 4096  # of both sides, with padding


class Recorder:
    """Sums over the real tokens of each language pair, in float64, by layer: how often each expert is chosen, with what
    combine weights; the same of first choices alone. A context, in which the model's routers are watched."""

    def __init__(self, model: Transformer, num_pairs: int) -> None:
        self._layers = model.moe_layers()
        device = model.target_embedding_VM.device
        self.sums = {
            name: torch.zeros(num_pairs, len(MEASURES), layer.num_experts, dtype=torch.float64, device=device)
            for name, layer in self._layers.items()
        }
        self.tokens = {name: torch.zeros(num_pairs, dtype=torch.int64, device=device) for name in self._layers}

    def __enter__(self) -> "Recorder":
        self._watches = [layer.router.register_forward_hook(self._watch(name)) for name, layer in self._layers.items()]
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self._watches:
            watch.remove()

    def _watch(self, name: str) -> Any:
        def note(_module: Any, arguments: tuple[Tensor, Tokens], routing: Routing) -> None:
            self._add(name, routing.decision, arguments[1])

        return note

    def _add(self, name: str, decision: Gating | Selection, tokens: Tokens) -> None:
        sums_PXE = self.sums[name]
        E, cells = decision.num_experts, tokens.num_pairs * decision.num_experts
        expert_GSK, asked_GSK, weight_GSK = choices(decision)
        cell_GSK = tokens.pair_GS.unsqueeze(-1) * E + expert_GSK
        asked_GSK = asked_GSK.double()
        weight_GSK = weight_GSK.double() * asked_GSK
        for index, value_GSK in enumerate((asked_GSK, weight_GSK, asked_GSK[..., :1], weight_GSK[..., :1])):
            cell_N = cell_GSK[..., : value_GSK.shape[-1]].flatten()
            sum_N = torch.zeros(cells, dtype=torch.float64, device=cell_N.device)
            sums_PXE[:, index] += sum_N.scatter_add_(0, cell_N, value_GSK.flatten()).view(-1, E)
        self.tokens[name] += torch.bincount(tokens.pair_GS[tokens.valid_GS], minlength=tokens.num_pairs)

    def to_json(self, pairs: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
        """Layer -> pair -> `tokens`, a number, and each of MEASURES, a number for each expert."""
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
    """Experts of each token, best first, whether the token has them, and with what weight, each [G, S, K].

    Where experts choose, K is E, and a token's best is the expert that takes it with the largest weight."""
    if isinstance(decision, Gating):
        return decision.expert_GSK, decision.asked_GSK, decision.weight_GSK
    G, S = decision.valid_GS.shape
    token_V, expert_V = decision.token_X[decision.filled_X], decision.expert_X[decision.filled_X]
    weight_TE = decision.weight_X.new_full((G * S, decision.num_experts), -1.0)  # below that of any that is taken
    weight_TE[token_V, expert_V] = decision.weight_X[decision.filled_X]
    sorted_TE, expert_TE = weight_TE.sort(dim=-1, descending=True, stable=True)
    asked_TE, size = sorted_TE >= 0, (G, S, decision.num_experts)
    return expert_TE.view(size), asked_TE.view(size), sorted_TE.view(size)


def batches(data: Sequence[EncodedSplit]) -> Iterator[Batch]:
    """All sentence pairs, one to a row, those of like length together."""
    rows = [
        (max(int(source), int(target)), pair, index)
        for pair, split in enumerate(data)
        for index, (source, target) in enumerate(zip(split.source_lengths, split.target_lengths, strict=True))
    ]
    held: list[tuple[int, int, int]] = []
    for row in sorted(rows):
        if held and (len(held) + 1) * row[0] > _BATCH_TOKENS:
            yield _batch(held, data)
            held = []
        held.append(row)
    if held:
        yield _batch(held, data)


def _batch(rows: Sequence[tuple[int, int, int]], data: Sequence[EncodedSplit]) -> Batch:
    longest = rows[-1][0]
    shape = GroupShape(rows=len(rows), source=longest, target=longest)
    return assemble([[(pair, index)] for _, pair, index in rows], shape, data)


@torch.inference_mode()
def record(
    model: Transformer,
    data: Sequence[EncodedSplit],
    pairs: Sequence[str],
    rounds: Sequence[Batch],
    check: Callable[[], None],
) -> Recorder:
    """What the model's tokens choose in these batches. check: called before each; raises where nobody waits."""
    with Recorder(model, len(pairs)) as recorder:
        for batch in rounds:
            check()
            model(batch.to(model.target_embedding_VM.device), label_smoothing=0.0)
    return recorder


def work(values: dict[str, Any], stop: StopRequest) -> None:
    job = build(RoutingJob, values)
    place = Place.take(job.runtime)
    data = [EncodedSplit.open(Path(directory), job.split) for directory in job.encoded]
    longest = max(int(max(d.source_lengths.max(), d.target_lengths.max())) for d in data)
    vocabulary, checkpoints = Vocabulary.load(Path(job.vocabulary)), Path(job.checkpoints)
    peers = join_peers(
        outline(checkpoints, vocabulary, job.decode),
        job.decode,
        job.runtime,
        place,
        longest=longest,
        stop=stop,
        title=job.title,
    )
    mesh = None if peers is None else peers.mesh
    model = load_model(checkpoints, vocabulary, longest=longest, config=job.decode, device=place.device, mesh=mesh)
    everything = list(batches(data))
    rounds = everything[place.rank :: place.world]
    if peers is not None:  # all of them come to every round
        empty = assemble([], GroupShape(rows=1, source=1, target=1), data)
        rounds += [empty] * (-(-len(everything) // place.world) - len(rounds))

    def check() -> None:
        if peers is not None:
            peers.any(busy=True)
        elif stop:
            raise Stopped(job.title)

    found = record(model, data, job.pairs, rounds, check)
    text = json.dumps(found.to_json(job.pairs))
    write_atomically(Path(job.out, f"routing.rank-{place.rank}.json"), text)


if __name__ == "__main__":
    run_process(work)
