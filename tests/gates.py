"""Every gate that ships: the files of configs/gate, as small MoE configurations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.config import GateConfig
from pipeline.schema import build

DIRECTORY = Path(__file__).resolve().parent.parent / "configs" / "gate"
PAIRS = ["de:en", "fr:en", "en:de", "en:fr"]  # the tasks of gates that choose by task
GATES = sorted(path.stem for path in DIRECTORY.glob("*.yaml"))


def moe_of(gate: str, **changes: Any) -> MoEConfig:
    """Return 4 experts of 16 hidden units behind the named gate."""
    values = yaml.safe_load((DIRECTORY / f"{gate}.yaml").read_text(encoding="utf-8"))
    return build(MoEConfig, {"num_experts": 4, "expert_dim": 16, **values, **changes}).with_pairs(PAIRS)


def gates_where(fact: Callable[[GateConfig], object]) -> list[str]:
    """Name the files of configs/gate where `fact` holds for the gates of encoder and decoder."""
    return [gate for gate in GATES if all(fact(moe_of(gate).gate_of(decoder=decoder)) for decoder in (False, True))]
