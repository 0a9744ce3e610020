"""Choice of the experts to keep, from records of their use (Koishekenov et al., arXiv:2212.09811). Free of torch.

E experts of a layer.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Metric = Literal["top1", "importance", "weight"]
Statistics = Mapping[str, Any]  # `tokens` and lists [E] of one layer and pair (`pipeline.decode.job.routing`)


def score(statistics: Sequence[Statistics], metric: Metric) -> list[float]:
    """Return a score [E] for each expert of a layer: the mean over pairs, in which every pair counts the same.

    statistics: records of the layer, one for each pair.
    metric: `top1` is the share of tokens whose first choice is the expert. `importance` is that share times
        e^confidence, where confidence is the expert's mean weight as first choice (the paper's metric of this name).
        `weight` is the sum of combine weights over the number of tokens.
    """
    pair_scores = [_score(pair_statistics, metric) for pair_statistics in statistics]
    return [sum(values) / len(values) for values in zip(*pair_scores, strict=True)]


def _score(statistics: Statistics, metric: Metric) -> list[float]:
    tokens = max(statistics["tokens"], 1)
    if metric == "weight":
        return [weight / tokens for weight in statistics["weight"]]
    top1 = [first / tokens for first in statistics["first"]]
    if metric == "top1":
        return top1
    confidence = [w / max(f, 1) for w, f in zip(statistics["first_weight"], statistics["first"], strict=True)]
    return [share * math.exp(c) for share, c in zip(top1, confidence, strict=True)]


def choose(
    scores: Mapping[str, Sequence[float]], *, keep: float, per_layer: bool, at_least: Mapping[str, int]
) -> dict[str, list[int]]:
    """Return the numbers of the experts to keep, by layer, in rising order.

    Ties go to the lower expert number, then to the earlier layer.
    scores: a score for each expert, by layer.
    keep: share of all experts to keep.
    per_layer: True keeps the same number of best experts in every layer. False uses the paper's global threshold: every
        layer keeps its best experts up to the same share of its total score, so that a layer whose tokens go to few
        experts keeps fewer.
    at_least: fewest experts to keep, by layer.
    """
    ranked = {name: sorted(range(len(s)), key=lambda e, s=s: (-s[e], e)) for name, s in scores.items()}  # type: ignore[misc]
    if per_layer:
        kept = {name: order[: max(at_least[name], rounded(keep * len(order)))] for name, order in ranked.items()}
        return {name: sorted(experts) for name, experts in kept.items()}
    kept = {name: order[: at_least[name]] for name, order in ranked.items()}
    candidates: list[tuple[float, int, str, int]] = []  # share of the layer's score before the expert, layer, expert
    for layer, (name, order) in enumerate(ranked.items()):
        total, score_before = sum(scores[name]) or 1.0, 0.0
        for rank, expert in enumerate(order):
            if rank >= at_least[name]:
                candidates.append((score_before / total, layer, name, expert))
            score_before += scores[name][expert]
    budget = rounded(keep * sum(map(len, ranked.values()))) - sum(map(len, kept.values()))
    for _, _, name, expert in sorted(candidates)[: max(budget, 0)]:
        kept[name].append(expert)
    return {name: sorted(experts) for name, experts in kept.items()}


def rounded(value: float) -> int:
    """Round to the nearest integer, and a half up."""
    return math.floor(value + 0.5)
