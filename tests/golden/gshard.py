"""GShard's models of Tables 1 and 3 (arXiv:2006.16668), as recipes/gshard/expected.csv has them, for several tests.

One recipe is read, and the others are made from it, which is faster. test_published_recipes.py checks that the recipes
are the same.
"""

import csv
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from pipeline.config import ROOT, RunConfig, load_config
from pipeline.model.config import ModelConfig

TOKENS = 1e12  # source tokens of the training of every model
YEAR = 365 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Published:
    """A row of the tables.

    batch: source tokens of a step, 0 if the paper does not give them.
    seconds: seconds of a step, 0 if the paper does not give them.
    """

    recipe: str
    experts: int
    layers: int
    parameters: int
    weights: float
    batch: float
    seconds: float
    core_years: float

    @property
    def cores(self) -> int:
        return self.experts or 2048

    @property
    def tokens(self) -> float:
        """Source tokens of a step and core."""
        return self.batch / self.cores

    @property
    def budget(self) -> float:
        """Source tokens of the whole training. Footnote 10 has those of the dense model: 300k steps, more than 1T."""
        return TOKENS if self.experts else 300_000 * self.batch

    @property
    def core_years_a_second(self) -> float:
        """Core years of the whole training for each second of a step."""
        return self.budget / self.batch * self.cores / YEAR


def published() -> list[Published]:
    """Return all rows, with T(96L)."""

    def number(text: str) -> float:
        return float(text or 0)

    with (ROOT / "recipes/gshard/expected.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [
        Published(
            recipe=row["recipe"],
            experts=int(row["experts"]),
            layers=int(row["layers"]),
            parameters=int(row["parameters"]),
            weights=float(row["published_parameters"]),
            batch=number(row["published_batch_tokens"]),
            seconds=1 / float(row["published_steps_per_second"]) if row["published_steps_per_second"] else 0.0,
            core_years=number(row["published_core_years"]),
        )
        for row in rows
    ]


MEASURED = {(row.experts, row.layers): row for row in published() if row.seconds}


@cache
def config() -> RunConfig:
    return load_config(["recipes=gshard/moe_128e_12l"])


def model(experts: int, layers: int) -> ModelConfig:
    """Return MoE(experts, layers), or without experts T(layers), whose keys have size 64."""
    base = config().model
    half = layers // 2
    return replace(
        base,
        encoder_layers=half,
        decoder_layers=half,
        head_dim=base.head_dim if experts else 64,
        moe=replace(base.moe, num_experts=experts),
    )


def fitted(features: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit one constant for each column of features, by least squares of relative errors."""
    constants: NDArray[np.float64] = np.linalg.lstsq(features / truth[:, None], np.ones(len(truth)), rcond=None)[0]
    return constants


def left_out(features: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the relative error of each row when it is predicted from the other rows."""
    errors = []
    for row in range(len(truth)):
        other_rows = np.arange(len(truth)) != row
        errors.append(features[row] @ fitted(features[other_rows], truth[other_rows]) / truth[row] - 1)
    return np.array(errors)
