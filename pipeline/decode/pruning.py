"""Which experts of a run some of its pairs need, as a file; free of torch so that it loads fast."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.config import GATES
from pipeline.schema import build

SMALLEST = 2  # experts that a gate needs to choose from


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Experts to keep, by layer (`encoder.2`), in rising order; of which run, its model, and for which pairs.

    num_experts: of each layer before. how: the settings by which they were chosen. statistics: what they were chosen
    by, layer -> pair -> measure.
    """

    run: str
    model: str
    pairs: list[str]
    num_experts: int
    experts: dict[str, list[int]]
    how: dict[str, Any]
    statistics: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "Pruning":
        try:
            return build(cls, json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise ValueError(f"experts={path} cannot be read ({error.strerror}); `make prune` writes it") from error
        except ValueError as error:
            raise ValueError(f"experts={path} is no pruning ({error}); make it again by `make prune`") from error

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)


def check_gates(moe: MoEConfig) -> None:
    """Raise ValueError where experts cannot be taken away from a gate."""
    if not moe.num_experts:
        raise ValueError("the run is a dense model, which has no experts to prune")
    for decoder in (False, True):
        gate = moe.gate_of(decoder=decoder)
        if gate.unprunable:
            kinds = ", ".join(kind for kind, config in GATES.items() if not config.unprunable)
            raise ValueError(
                f"the gate {gate.kind} cannot go without some of its experts, because {gate.unprunable}; "
                f"those that can are {kinds}"
            )


def smallest(moe: MoEConfig, *, decoder: bool) -> int:
    """Experts that a layer cannot go below: what its gate gives a token, and at least two to choose from."""
    return max(int(moe.gate_of(decoder=decoder).experts_per_token), SMALLEST)


def check_experts(moe: MoEConfig, layers: Sequence[str], experts: Mapping[str, Sequence[int]]) -> None:
    """Raise ValueError unless `experts` says for each MoE layer which of its experts to keep, enough for its gate."""
    check_gates(moe)
    if list(experts) != list(layers):
        raise ValueError(
            f"the pruning is of the layers {', '.join(experts) or 'none'}, the model has {', '.join(layers)}; was it "
            "made for another run?"
        )
    for name, kept in experts.items():
        least = smallest(moe, decoder=name.startswith("decoder"))
        if list(kept) != sorted(set(kept)) or not all(0 <= expert < moe.num_experts for expert in kept):
            raise ValueError(
                f"experts of {name}: {list(kept)} are not different numbers from 0 to {moe.num_experts - 1} in rising "
                "order"
            )
        if len(kept) < least:
            raise ValueError(f"experts of {name}: {len(kept)} are kept, and its gate needs at least {least}")
