"""Scores of what the model in training translates: a sample of the development sentences, the same at each validation.

P language pairs, X sums from which a metric computes its score.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from eval.records.scores import METRICS
from eval.score.by_command import scores_unless_stopped
from eval.score.metrics import Scorer, score_from_sums, scorer_for, sentence_statistics
from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.peers import ExpertPeers
from pipeline.decode.search.search import Request, max_length, search
from pipeline.decode.text.batches import plan_batches
from pipeline.model.adapters import merged
from pipeline.model.transformer import Transformer
from pipeline.parallel.mesh import Mesh
from pipeline.train.job import TrainJob
from pipeline.train.measure import counted_once, largest
from pipeline.vocab.encode import ENCODED
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.vocabulary import Vocabulary

BATCH_TOKENS = 4096  # padded source tokens times beam; fixed, so that batches do not depend on the number of processes


@dataclass(frozen=True, kw_only=True)
class SampleResult:
    """Scores of the sample at one validation.

    metric: name in `METRICS`.
    scores: by pair; from 0 to 100 for the metrics of sacreBLEU.
    num_lines: translated sentences of all pairs together.
    seconds: time that translating and scoring took.
    """

    metric: str
    scores: Sequence[float]
    num_lines: int
    seconds: float

    @property
    def score(self) -> float:
        """The mean over pairs, each counting the same."""
        return sum(self.scores) / len(self.scores)

    def record(self, pairs: Sequence[str]) -> dict[str, Any]:
        """Return the values for a record. pairs: their names."""
        return {
            "metric": self.metric,
            "score": self.score,
            "scores": dict(zip(pairs, self.scores, strict=True)),
            "translation_seconds": self.seconds,
        }

    def __str__(self) -> str:
        return f"{METRICS[self.metric].title} {self.score:.2f} of {self.num_lines} sentences in {self.seconds:.1f} s"


class SampleScore:
    """The sample of every pair's development sentences, and the scores of its translations by `train.validate_metric`.

    Each process translates some of the batches in float32, whatever `train.precision` is. It scores what it has
    translated, and the scores follow from sums of whole numbers over all processes. So they depend on the translations
    alone. References are the encoded targets, decoded. Rows that were too long to be encoded whole are no part of it.
    """

    def __init__(
        self, job: TrainJob, dev: Sequence[EncodedSplit], vocabulary: Vocabulary, model: Transformer, mesh: Mesh
    ) -> None:
        self.model, self.vocabulary, self.mesh = model, vocabulary, mesh
        self.metric, self._command = job.train.validate_metric, job.train.validate_command
        self.config = DecodeConfig(beam=job.train.validate_beam, batch_tokens=BATCH_TOKENS)
        self.targets = [direction.partition(":")[2] for direction in job.directions]
        rows_of = [whole_rows(Path(directory), d) for directory, d in zip(job.encoded, dev, strict=True)]
        places = [(p, row) for p, rows in enumerate(rows_of) for row in evenly_spaced(rows, job.train.validate_lines)]
        self._num_lines = len(places)
        requests = [
            Request(
                source=dev[pair].source(row).tolist(),
                start=vocabulary.first_target_tags(self.targets[pair]),
                pair=job.directions[pair],
            )
            for pair, row in places
        ]
        lengths = [len(request.source) for request in requests]
        batches = plan_batches(lengths, self.config)
        own = batches[mesh.batch_rank :: mesh.batch_size]
        num_rounds = -(-len(batches) // mesh.batch_size)
        self._rounds = [[requests[number] for number in batch] for batch in own]
        self._rounds += [[]] * (num_rounds - len(own))  # experts of this process may have to wait for the others
        self._places, self._numbers = places, [number for batch in own for number in batch]
        self._pairs = [places[number][0] for number in self._numbers]
        self._references = vocabulary.decode_target([dev[pair].target(row).tolist() for pair, row in places])
        self._scorers: list[Scorer] = []
        if self._command:
            pieces = [dev[pair].source(row).tolist()[1:-1] for pair, row in places]  # without tag and end
            self._sources = vocabulary.source_model.decode(pieces)
        else:
            self._prepare_scorers()
        cut = mesh.layout.axis("E") is not None and bool(model.moe_layers())
        self._peers = ExpertPeers(mesh, stop=lambda: False, title=job.title) if cut else None  # `run` stops
        model.reach(max(max(length, max_length(length, self.config)) for length in lengths))

    def _prepare_scorers(self) -> None:
        """Give each pair its metric of sacreBLEU, with the references of this process."""
        references = [self._references[number] for number in self._numbers]
        for pair, target in enumerate(self.targets):
            of_pair = [self._of_pair(references, pair)] if pair in self._pairs else None
            self._scorers.append(scorer_for(self.metric, target, references=of_pair))
        any_scorer = scorer_for(self.metric, self.targets[0], references=[["x"]])
        self._num_sums = sentence_statistics(any_scorer, ["x"]).shape[1]

    def run(self, stop: Callable[[], bool] = lambda: False) -> SampleResult | None:
        """Translate the sample and score it. Return None if a process is asked to stop before the end. A collective.

        stop: tells if this process was asked to stop.
        """
        began = time.perf_counter()
        tokens: list[list[int]] = []
        with torch.compiler.set_stance("force_eager"), merged(self.model):  # every batch has another shape
            for batch in self._rounds:
                if largest([float(stop())], self.mesh.device)[0]:
                    return None
                tokens += [best.tokens for best, *_ in search(self.model, batch, self.config, self._peers)]
        texts = [text.replace("\n", " ") for text in self.vocabulary.decode_target(tokens)]
        scores = self._scores_by_command(texts, stop) if self._command else self._scores(texts)
        if scores is None:
            return None
        seconds = time.perf_counter() - began
        return SampleResult(metric=self.metric, scores=scores, num_lines=self._num_lines, seconds=seconds)

    def _scores(self, texts: Sequence[str]) -> list[float]:
        """Return the score of each pair by sacreBLEU. A collective. texts: translations of this process."""
        sums_PX = counted_once(self._sums(texts), self.mesh)
        dist.all_reduce(sums_PX)
        sums_of_pairs = sums_PX.cpu().numpy()
        return [score_from_sums(scorer, sums) for scorer, sums in zip(self._scorers, sums_of_pairs, strict=True)]

    def _scores_by_command(self, texts: Sequence[str], stop: Callable[[], bool]) -> list[float] | None:
        """Return the score of each pair by the user's command, which the first process runs. A collective.

        Return None if the first process is asked to stop meanwhile.
        Raises ValueError on all processes if the command fails.
        """
        own = [] if self.mesh.get_model_parallel_rank() else list(zip(self._numbers, texts, strict=True))
        gathered: list[list[tuple[int, str]]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(gathered, own)
        answer: list[list[float] | str | None] = [None]
        if dist.get_rank() == 0:
            translations = dict(sorted(pair for of_process in gathered for pair in of_process))
            try:
                answer = [self._means(list(translations.values()), stop)]
            except (ValueError, OSError) as error:
                answer = [str(error)]
        dist.broadcast_object_list(answer, src=0)
        if isinstance(answer[0], str):
            raise ValueError(answer[0])
        return answer[0]

    def _means(self, translations: Sequence[str], stop: Callable[[], bool]) -> list[float] | None:
        """Return the mean of the command's numbers for each pair, times the metric's scale; None if it is stopped."""
        sentences = list(zip(self._sources, translations, self._references, strict=True))
        numbers = scores_unless_stopped("train.validate_command", self._command, sentences, stop)
        if numbers is None:
            return None
        scale, of_pair = METRICS[self.metric].scale, [pair for pair, _ in self._places]
        return [
            scale * sum(number for number, p in zip(numbers, of_pair, strict=True) if p == pair) / of_pair.count(pair)
            for pair in range(len(self.targets))
        ]

    def _sums(self, texts: Sequence[str]) -> Tensor:
        """Return what this process's translations add to the sums of each pair, [P, X] in float64."""
        sums_PX = torch.zeros(len(self.targets), self._num_sums, dtype=torch.float64)
        for pair in set(self._pairs):
            statistics = sentence_statistics(self._scorers[pair], self._of_pair(texts, pair))
            sums_PX[pair] = torch.from_numpy(statistics).sum(dim=0)
        return sums_PX.to(self.mesh.device)

    def _of_pair(self, texts: Sequence[str], pair: int) -> list[str]:
        return [text for text, number in zip(texts, self._pairs, strict=True) if number == pair]


def whole_rows(directory: Path, split: EncodedSplit) -> list[int]:
    """Return the numbers of the rows that encoding has not cut, which are those below its limits; all if it cut all.

    directory: of the encoded rows.
    """
    limits = json.loads((directory / ENCODED).read_text(encoding="utf-8"))
    whole = split.source_lengths < limits["max_source_tokens"]
    whole &= split.target_lengths < limits["max_target_tokens"]
    return np.flatnonzero(whole).tolist() or list(range(len(split)))


def evenly_spaced(rows: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the rows, in order and evenly spaced."""
    count = min(len(rows), most)
    return [rows[(2 * number + 1) * len(rows) // (2 * count)] for number in range(count)]
