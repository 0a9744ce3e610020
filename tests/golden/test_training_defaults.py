"""Settings of training that are published: sections 5.3 and 5.4 of Attention Is All You Need (arXiv:1706.03762)."""

import pytest

from pipeline.config import load_config
from pipeline.train.config import TrainConfig

ADAM = {"beta1": 0.9, "beta2": 0.98, "epsilon": 1e-9}
SMOOTHING = {"label_smoothing": 0.1}


def chosen(config: TrainConfig, settings: dict[str, float]) -> dict[str, float]:
    return {name: getattr(config, name) for name in settings}


@pytest.mark.parametrize(("train", "settings"), [("adamw", ADAM | SMOOTHING), ("adafactor", SMOOTHING)])
def test_of_the_configuration(train: str, settings: dict[str, float]) -> None:
    assert chosen(load_config([f"train={train}"]).train, settings) == settings


def test_of_the_dataclass() -> None:
    """A TrainConfig made in Python has these values. Configuration files name every value themselves."""
    config = TrainConfig(max_steps=1, max_tokens=0, learning_rate=1.0, warmup_steps=1, validate_every=1)
    assert chosen(config, ADAM | SMOOTHING) == ADAM | SMOOTHING
