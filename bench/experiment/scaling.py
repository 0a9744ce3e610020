"""A fit of training loss against target tokens, and its value at ten times the tokens.

The form is loss = floor + scale · tokens^-exponent, that of Hoffmann et al. (arXiv:2203.15556) with tokens alone, for
text that does not repeat.

Where the learning rate does not depend on the budget (the inverse square root of the step), the loss after so many
tokens is that of a run with that budget. `backtest` says how well the first half of the budget predicts its end,
twice as far away; it says nothing of what is ten times as far.

R resamples, S seeds, N points of a curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.experiment.contrasts import systems_of
from bench.experiment.curves import training_curve
from bench.output import Row
from eval.number_format import decimal, quantity
from eval.records.results import RunResults
from eval.text_table import aligned

FIRST_PART = 0.1  # of the budget, which is left out: the warm-up and the first steep fall
FEWEST = 8  # points between that and half of the budget
RESAMPLES, SEED = 1000, 1
BLOCK = 4  # neighbouring residuals that are drawn together, because neighbours err alike
EXPONENTS = np.arange(0.02, 2.001, 0.02)
TIMES = 10
SCHEDULE = "inverse_square_root"
PREDICTED = ("floor", "exponent", "later", "backtest")
ENDINGS = ("", "_low", "_high")
COLUMNS = (
    *("system", "num_seeds", "times", "tokens", "loss"),
    *(name + ending for name in PREDICTED for ending in ENDINGS),
)

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Parameters of loss = floor + scale · tokens^-exponent, a value for each curve. Losses are in nats a token."""

    floor_R: Array
    scale_R: Array
    exponent_R: Array

    def loss(self, tokens: float | Array) -> Array:
        """Return the loss [R] after so many tokens; of a single curve, for one or several numbers of tokens."""
        loss_R: Array = self.floor_R + self.scale_R * tokens**-self.exponent_R
        return loss_R


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A fit of one system, whose seeds have the same steps. Triples are a value and its interval of 95 %.

    loss: measured after `tokens`, the mean of the seeds.
    later: loss by the fit after TIMES as many.
    backtest: loss that a fit of the first half of the budget gives for its end.
    """

    tokens: float
    loss: float
    floor: tuple[float, float, float]
    exponent: tuple[float, float, float]
    later: tuple[float, float, float]
    backtest: tuple[float, float, float]


def fit(tokens_N: Array, loss_RN: Array) -> Fit:
    """Fit each curve by least squares. Neither the floor nor the scale is below zero."""
    best_R = np.full(len(loss_RN), np.inf)
    parameters_R3 = np.zeros((len(loss_RN), 3))
    unit = tokens_N.mean()
    for exponent in EXPONENTS:
        x_N = (tokens_N / unit) ** -exponent
        centred_N = x_N - x_N.mean()
        scale_R = loss_RN @ centred_N / (centred_N @ centred_N)
        floor_R = loss_RN.mean(axis=1) - scale_R * x_N.mean()
        rising_R = scale_R < 0
        scale_R, floor_R = np.where(rising_R, 0.0, scale_R), np.where(rising_R, loss_RN.mean(axis=1), floor_R)
        below_R = floor_R < 0
        scale_R = np.where(below_R, loss_RN @ x_N / (x_N @ x_N), scale_R)
        floor_R = np.where(below_R, 0.0, floor_R)
        error_R = ((loss_RN - floor_R[:, None] - scale_R[:, None] * x_N) ** 2).sum(axis=1)
        better_R = error_R < best_R
        best_R = np.where(better_R, error_R, best_R)
        values_R3 = np.stack([floor_R, scale_R * unit**exponent, np.full_like(floor_R, exponent)], axis=1)
        parameters_R3[better_R] = values_R3[better_R]
    floor_R, scale_R, exponent_R = parameters_R3.T
    return Fit(floor_R=floor_R, scale_R=scale_R, exponent_R=exponent_R)


def predict(tokens_N: Array, loss_SN: Array) -> Prediction:
    """Fit the mean curve of the seeds, and predict its loss after TIMES as many tokens.

    The intervals are of curves that are made anew: seeds drawn with replacement, and blocks of the fit's residuals,
    both widened to the variance of a sample. One seed gives no variance between seeds.

    loss_SN: losses, a row for each seed.
    Raises ValueError for fewer than FEWEST points between FIRST_PART and half of the budget.
    """
    budget = float(tokens_N[-1])
    used_N = tokens_N >= FIRST_PART * budget
    tokens_N, loss_SN = tokens_N[used_N], loss_SN[:, used_N]
    half = tokens_N <= budget / 2
    if half.sum() < FEWEST:
        raise ValueError(
            f"{half.sum()} points between {FIRST_PART:.0%} and half of the budget are too few for a fit; "
            f"it needs {FEWEST}"
        )
    whole, first = _resampled(tokens_N, loss_SN), _resampled(tokens_N[half], loss_SN[:, half])
    return Prediction(
        tokens=budget,
        loss=float(loss_SN[:, -1].mean()),
        floor=_interval(whole.floor_R),
        exponent=_interval(whole.exponent_R),
        later=_interval(whole.loss(TIMES * budget)),
        backtest=_interval(first.loss(budget)),
    )


def _resampled(tokens_N: Array, loss_SN: Array) -> Fit:
    """Return the fit of the mean curve first, then those of RESAMPLES curves that are made anew."""
    generator = np.random.default_rng(SEED)
    S, N = loss_SN.shape
    mean_N = loss_SN.mean(axis=0)
    fitted = fit(tokens_N, mean_N[None])
    residual_N = mean_N - fitted.loss(tokens_N)
    starts = generator.integers(0, N, size=(RESAMPLES, -(-N // BLOCK)))
    places_RN = ((starts[..., None] + np.arange(BLOCK)) % N).reshape(RESAMPLES, -1)[:, :N]
    seeds_RS = generator.integers(0, S, size=(RESAMPLES, S))
    seed_RN = (loss_SN[seeds_RS].mean(axis=1) - mean_N) * (S / max(S - 1, 1)) ** 0.5
    curve_RN = mean_N - residual_N + seed_RN + residual_N[places_RN] * (N / (N - 3)) ** 0.5  # three parameters
    return fit(tokens_N, np.concatenate([mean_N[None], curve_RN]))


def _interval(value_R: Array) -> tuple[float, float, float]:
    """Return the value of the mean curve, and the interval of 95 % of the others."""
    low, high = np.quantile(value_R[1:], [0.025, 0.975])
    return float(value_R[0]), float(low), float(high)


def describe(runs: Sequence[RunResults]) -> list[dict[str, Any]]:
    """Return a row with the prediction of each system. Runs that differ in the seed are one system.

    Raises ValueError for another schedule of the learning rate, for runs of one system with other steps, and as
    `training_curve`.
    """
    rows = []
    for system in systems_of(runs):
        for run in system.runs:
            kind = run.record.config["train"]["schedule"]["kind"]
            if kind != SCHEDULE:
                raise ValueError(
                    f"{run.label}: with train.schedule.kind={kind} an earlier loss is not that of a shorter run"
                )
        curves = [training_curve(run.directory) for run in system.runs]
        if len({tuple(point.step for point in curve) for curve in curves}) > 1:
            raise ValueError(f"{system.label}: its runs have other steps; give runs of one budget")
        tokens = [[point.target_tokens for point in curve] for curve in curves]
        losses = np.array([[point.cross_entropy for point in curve] for curve in curves])
        prediction = predict(np.mean(tokens, axis=0), losses)
        triples = {name: getattr(prediction, name) for name in PREDICTED}
        numbers = {
            name + ending: value
            for name, triple in triples.items()
            for ending, value in zip(ENDINGS, triple, strict=True)
        }
        about = {"system": system.label, "num_seeds": len(curves), "times": TIMES}
        rows.append({**about, "tokens": prediction.tokens, "loss": prediction.loss, **numbers})
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table for a terminal."""
    lines = [["system", "seeds", "tokens", "loss", "floor", "exponent", f"loss at {TIMES}×", "end from first half"]]
    for row in rows:
        cells = [row["system"], str(row["num_seeds"]), quantity(row["tokens"]), decimal(row["loss"], 3)]
        for name in PREDICTED:
            value, low, high = (decimal(row[name + ending], 3) for ending in ENDINGS)
            cells.append(f"{value} [{low}, {high}]")
        lines.append(cells)
    return aligned(lines)
