"""Which experts to keep, by what was recorded of their use (Koishekenov et al., arXiv:2212.09811); free of torch.

E experts of a layer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Metric = Literal["top1", "importance", "weight"]
Statistics = Mapping[str, Any]  # of one layer and pair: `tokens`, and lists of E numbers (`pipeline.decode.routing`)


def score(statistics: Sequence[Statistics], metric: Metric) -> list[float]:
    """A score for each expert of a layer, the mean over pairs, so that a large one does not drown the others.

    top1: share of tokens whose first choice an expert is. importance: the same times e^confidence, its mean weight
    where it is the first choice (the paper's metric of this name). weight: combine weights a token.
    """
    of_pairs = [_score(each, metric) for each in statistics]
    return [sum(values) / len(values) for values in zip(*of_pairs, strict=True)]


def _score(of_pair: Statistics, metric: Metric) -> list[float]:
    tokens = max(of_pair["tokens"], 1)
    if metric == "weight":
        return [weight / tokens for weight in of_pair["weight"]]
    top1 = [first / tokens for first in of_pair["first"]]
    if metric == "top1":
        return top1
    confidence = [w / max(f, 1) for w, f in zip(of_pair["first_weight"], of_pair["first"], strict=True)]
    return [share * math.exp(c) for share, c in zip(top1, confidence, strict=True)]


def choose(
    scores: Mapping[str, Sequence[float]], *, keep: float, per_layer: bool, at_least: Mapping[str, int]
) -> dict[str, list[int]]:
    """Experts to keep of each layer, in rising order. keep: share of all experts. at_least: experts of each layer.

    per_layer: the best of each layer, as many of each. Else the paper's global threshold: each layer keeps its best
    experts up to one share of its total score, the same for all, so that a layer whose tokens go to few experts keeps
    fewer. Ties go to the lower index, then to the earlier layer.
    """
    ranked = {name: sorted(range(len(s)), key=lambda e, s=s: (-s[e], e)) for name, s in scores.items()}  # type: ignore[misc]
    if per_layer:
        kept = {name: order[: max(at_least[name], rounded(keep * len(order)))] for name, order in ranked.items()}
        return {name: sorted(experts) for name, experts in kept.items()}
    kept = {name: order[: at_least[name]] for name, order in ranked.items()}
    reached: list[tuple[float, int, str, int]] = []  # (share of a layer's score before this expert, ...)
    for place, (name, order) in enumerate(ranked.items()):
        total, before = sum(scores[name]) or 1.0, 0.0
        for rank, expert in enumerate(order):
            if rank >= at_least[name]:
                reached.append((before / total, place, name, expert))
            before += scores[name][expert]
    budget = rounded(keep * sum(map(len, ranked.values()))) - sum(map(len, kept.values()))
    for _, _, name, expert in sorted(reached)[: max(budget, 0)]:
        kept[name].append(expert)
    return {name: sorted(experts) for name, experts in kept.items()}


def rounded(value: float) -> int:
    """Half goes up."""
    return math.floor(value + 0.5)
