"""The fit of loss against tokens finds the parameters of curves that are known."""

import json

import numpy as np
import pytest

from bench.experiment.curves import PARTS
from bench.experiment.scaling import COLUMNS, EXPONENTS, FEWEST, TIMES, describe, fit, predict, table
from eval.records.results import RunResults
from eval.records.run_record import load_run
from tests.unit.eval.conftest import write_jsonl

TOKENS = np.arange(1, PARTS + 1) * 300_000.0


def curve(floor=2.1, scale=900.0, exponent=0.42):
    return floor + scale * TOKENS**-exponent


def noisy(seeds, spread=0.004, level=0.0):
    """Curves whose neighbouring errors are alike."""
    generator = np.random.default_rng(3)
    steps = generator.normal(0, spread, size=(seeds, len(TOKENS) + 3))
    smooth = sum(steps[:, shift : shift + len(TOKENS)] for shift in range(4)) / 2
    return curve() + smooth + generator.normal(0, level, size=(seeds, 1))


def test_an_exact_curve_is_found():
    exponent = EXPONENTS[20]
    law = fit(TOKENS, np.stack([curve(2.1, 900.0, exponent), curve(0.0, 30.0, exponent)]))
    assert law.exponent_R == pytest.approx([exponent, exponent])
    assert law.floor_R == pytest.approx([2.1, 0.0], abs=1e-6)
    assert law.loss(5e7) == pytest.approx([2.1 + 900 * 5e7**-exponent, 30 * 5e7**-exponent])


def test_a_floor_is_not_negative():
    rising_floor = 3.0 - 0.2 * np.log(TOKENS / TOKENS[0])  # falls forever
    assert fit(TOKENS, rising_floor[None]).floor_R == pytest.approx([0.0], abs=0.5)
    assert (fit(TOKENS, rising_floor[None]).floor_R >= 0).all()


def test_the_interval_holds_the_truth_and_grows_with_the_seeds_spread():
    truth = float(curve()[-1]), 2.1 + 900 * (TIMES * TOKENS[-1]) ** -0.42
    alike, apart = predict(TOKENS, noisy(3)), predict(TOKENS, noisy(3, level=0.05))
    assert alike.loss == pytest.approx(truth[0], abs=0.02)
    assert alike.later[1] < truth[1] < alike.later[2]
    assert alike.backtest[1] < alike.loss < alike.backtest[2]
    assert apart.later[2] - apart.later[1] > alike.later[2] - alike.later[1]


def test_few_points_are_refused():
    few = 2 * FEWEST - 4
    with pytest.raises(ValueError, match=f"too few for a fit; it needs {FEWEST}"):
        predict(TOKENS[:few], curve()[None, :few])


def test_a_rising_curve_is_flat_in_the_fit():
    law = fit(TOKENS, (2 + TOKENS / 1e9)[None])
    assert (law.scale_R, law.loss(1e9)) == (pytest.approx([0.0]), pytest.approx(law.floor_R))


def test_seeds_widen_the_interval_as_a_sample_of_their_size_does():
    """The mean of two curves that differ by 0.2 has a standard error of 0.1; half of the draws take one curve twice."""
    apart = predict(TOKENS, curve() + np.array([[-0.1], [0.1]]))
    assert apart.later[2] - apart.later[1] == pytest.approx(2 * 0.1 * 2**0.5, rel=0.05)


def run_of(directory, seed, losses, schedule="inverse_square_root", steps=1):
    """A run with these training losses, and a record of no more than its seed and its schedule."""
    directory.mkdir()
    records = [
        {"event": "train", "step": steps * number, "target_tokens": int(tokens), "cross_entropy": loss}
        for number, (tokens, loss) in enumerate(zip(TOKENS, losses, strict=True), 1)
    ]
    write_jsonl(directory / "metrics.jsonl", records)
    keys = dict.fromkeys(("recipe", "commit"), "x") | {"pairs": ["de-en"], "train_pairs": {"de-en": 9}, "systems": {}}
    config = {"train": {"seed": seed, "schedule": {"kind": schedule}}}
    record = {"name": directory.name, "config": config, "sample_sentences": True, **keys}
    (directory / "run.json").write_text(json.dumps(record), encoding="utf-8")
    return RunResults(label=directory.name, directory=directory, record=load_run(directory), scores=(), gains=())


def test_runs_of_one_system_share_a_line(tmp_path):
    losses = noisy(3)
    runs = [run_of(tmp_path / f"dense_s{seed}", seed, losses[seed - 1]) for seed in (1, 2)]
    assert [row["system"] for row in describe(runs[:1])] == ["dense"]  # as the other tables name it
    (row,) = describe(runs)
    assert row.keys() == {*COLUMNS}
    assert row["later_low"] < row["later"] < row["later_high"]
    head, line = table([row]).splitlines()
    assert head.split()[:4] == ["system", "seeds", "tokens", "loss"]
    assert line.split()[:3] == ["dense", "2", "12.0"]
    runs.append(run_of(tmp_path / "dense_s3", 3, losses[2], steps=2))
    with pytest.raises(ValueError, match="dense: its runs have other steps; give runs of one budget"):
        describe(runs)
    with pytest.raises(
        ValueError, match=r"cosine: with train\.schedule\.kind=cosine an earlier loss is not that of a shorter run"
    ):
        describe([run_of(tmp_path / "cosine", 1, losses[0], "cosine")])
