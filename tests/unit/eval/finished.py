"""Finished runs in memory, for tests that need only records and scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.records.results import RunResults
from eval.records.run_record import RunRecord
from eval.records.scores import BASELINE, SYSTEM, ScoreRow

SIZES = {"de-en": 6000, "fr-en": 5000, "es-en": 4000, "ru-en": 300, "ja-en": 200, "tr-en": 100}


def finished(
    label: str,
    *,
    experts: int = 0,
    seed: int = 1,
    flops: float | None = 1e6,
    bleu: float = 10.0,
    bilingual: float | None = None,
    sizes: Mapping[str, int] = SIZES,
    ledger: Mapping[str, Any] | None = None,
    **config: Any,
) -> RunResults:
    """Return a run that scores `bleu` on every pair, and one point more on the smaller half of the pairs.

    bilingual: score of its baselines on every pair, None for no baselines.
    """
    model = {"encoder_layers": 3, "decoder_layers": 3, "moe": {"num_experts": experts, "gate": {"kind": "top2"}}}
    costs = {"parameters": 4e6, "active_parameters": 2e6, "flops_per_token": flops, "tokens": 1000}
    costs |= {"steps": 50, "train_seconds": 25.0, "device_hours": 0.5, "artifacts": {"model": label}, **(ledger or {})}
    systems = {SYSTEM: [costs]}
    ordered = sorted(sizes, key=lambda pair: -sizes[pair])
    scores = {(pair, SYSTEM): bleu + (place >= len(ordered) / 2) for place, pair in enumerate(ordered)}
    if bilingual is not None:
        systems[BASELINE] = [costs | {"artifacts": {"model": pair}, "pair": pair} for pair in ordered]
        scores |= {(pair, BASELINE): bilingual for pair in ordered}
    record = RunRecord(
        name=label,
        pairs=tuple(ordered),
        train_pairs=sizes,
        languages={pair: (pair.split("-")[0], "en") for pair in ordered},
        recipe="test",
        commit="0123456789abcdef",
        created="",
        config={"name": label, "model": model, "train": {"seed": seed}, **config},
        environment={},
        systems=systems,
        corpus={"name": "sample"},
        funnel={},
        sources={},
        examples={},
        not_judged={},
        encoded={},
        baseline_search={},
        baseline_boundaries=(),
        translated={},
        untrained=(),
        overlap={},
        sample_sentences=False,
    )
    rows = tuple(
        ScoreRow(
            pair=pair,
            system=system,
            train_pairs=sizes[pair],
            metric="bleu",
            score=score,
            ci_low=score - 1,
            ci_high=score + 1,
            n_test=300,
            signature="tok:13a",
        )
        for (pair, system), score in scores.items()
    )
    return RunResults(label=label, directory=Path(label), record=record, scores=rows, gains=())
