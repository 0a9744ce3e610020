"""Prunings: files that name the experts that some pairs of a run need. Free of torch so that it loads fast."""

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
    """A choice of experts to keep in a run's model, for some of its pairs.

    run, model: name of the run, and `<stage>/<key>` of its model.
    pairs: names of the pairs.
    num_experts: experts of each layer before pruning.
    experts: numbers of the experts to keep, by layer (`encoder.2`), in rising order.
    how: the settings of the choice.
    statistics: the measures behind the choice, layer -> pair -> measure.
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
        """Read a pruning from its file. Raises ValueError if it cannot be read or is damaged."""
        try:
            return build(cls, json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise ValueError(f"experts={path} cannot be read ({error.strerror}); `make prune` writes it") from error
        except ValueError as error:
            raise ValueError(
                f"experts={path} is no pruning ({error}); make it again by `make prune` and REPLACE=1"
            ) from error

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, indent=1)


def check_gates(moe: MoEConfig) -> None:
    """Raise ValueError if the model is dense, or has a gate that cannot work without some of its experts."""
    if not moe.num_experts:
        raise ValueError("the run is a dense model, which has no experts to prune")
    for decoder in (False, True):
        gate = moe.gate_of(decoder=decoder)
        if gate.unprunable:
            kinds = ", ".join(kind for kind, config in GATES.items() if not config().unprunable)
            raise ValueError(
                f"the gate {gate.kind} cannot go without some of its experts, because {gate.unprunable}; "
                f"those that can are {kinds}"
            )


def smallest(moe: MoEConfig, *, decoder: bool) -> int:
    """Return the fewest experts of a layer: as many as its gate gives a token, and at least `SMALLEST`."""
    return max(int(moe.gate_of(decoder=decoder).experts_per_token), SMALLEST)


def check_experts(moe: MoEConfig, layers: Sequence[str], experts: Mapping[str, Sequence[int]]) -> None:
    """Raise ValueError unless `experts` has enough valid expert numbers for the gate of each MoE layer."""
    check_gates(moe)
    if list(experts) != list(layers):
        raise ValueError(
            f"the pruning is of the layers {', '.join(experts) or 'none'}, the model has {', '.join(layers)}; was it "
            "made for another run?"
        )
    for name, numbers in experts.items():
        least = smallest(moe, decoder=name.startswith("decoder"))
        if list(numbers) != sorted(set(numbers)) or not all(0 <= number < moe.num_experts for number in numbers):
            raise ValueError(
                f"experts of {name}: {list(numbers)} are not different numbers from 0 to {moe.num_experts - 1} in "
                "rising order"
            )
        if len(numbers) < least:
            raise ValueError(f"experts of {name}: {len(numbers)} are kept, and its gate needs at least {least}")
