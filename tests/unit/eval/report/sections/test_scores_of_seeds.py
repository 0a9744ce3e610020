from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from eval.records.run_record import load_translations
from eval.score.seeds import seed_shares
from tests.unit.eval.conftest import MakeRun, config_of
from tests.unit.eval.report.sections.score_pages import RESAMPLES, scored_run, section_of


def test_systems_of_equal_seeds_draw_the_same_ones_whatever_their_order(make_run: MakeRun, tmp_path: Path) -> None:
    """A seed draws the batches of all systems alike, so what it does to all of them is no difference between them."""
    runs = [
        scored_run(make_run, f"{name}_s{seed}", {"moe": damage}, ["de-en"], config=config_of(experts, seed))
        for name, experts, seed, damage in (
            *(("dense", 0, 1, 0.5), ("dense", 0, 2, 0.2)),
            *(("moe", 8, 2, 0.15), ("moe", 8, 1, 0.45), ("other", 4, 1, 0.45), ("other", 4, 3, 0.15)),
        )
    ]
    dense, moe, other = section_of(tmp_path, runs)["tables"]
    files = {(label[:-3], label[-1]): load_translations(run_dir, "moe", "de-en") for label, run_dir in runs}
    lines = {name: [line.hypothesis for line in translations] for name, translations in files.items()}
    references = [line.reference for line in files["dense", "1"]]
    draws = np.random.default_rng(12345).choice(len(references), size=(RESAMPLES, len(references)))

    def corpus(name: str, seed: str, places: Any) -> float:
        chosen = [lines[name, seed][k] for k in places]
        return float(BLEU().corpus_score(chosen, [[references[k] for k in places]]).score)

    drawn = ["1" if share else "2" for share, _ in seed_shares(2, RESAMPLES, "seeds 1 2")]
    gaps = sorted(corpus("moe", s, draw) - corpus("dense", s, draw) for s, draw in zip(drawn, draws, strict=True))
    against = moe.against["de-en"]
    assert (against.ci_low, against.ci_high) == pytest.approx((gaps[1], gaps[-2]))
    independent = other.against["de-en"]  # of another pair of seeds
    assert against.ci_high - against.ci_low < 0.8 * (independent.ci_high - independent.ci_low)
    assert dense.against == {}
