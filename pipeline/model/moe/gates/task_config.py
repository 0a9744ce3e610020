"""Configuration of the gate that chooses experts by task. Free of torch, so that it loads fast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pipeline.model.moe.gates import checks


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """Routing by task: all tokens of a task visit the same k experts (Kudugunta et al., arXiv:2110.03742).

    An expert's output counts in full, so that the k experts of a task are one dense network of k times their width.
    by: a task is a language pair (`pair`), or all pairs with the same `source` or `target`.
    k: experts of a task.
    balance_weight: weight of the balance loss of GShard's gate, which keeps tasks from crowding on few experts.
    pairs: the language pairs, `de:en fr:en`, in the order of the batches' numbers. A run fills them in.
    """

    kind: Literal["task"] = "task"
    by: Literal["pair", "source", "target"] = "pair"
    k: int = 1
    balance_weight: float = 0.01
    pairs: str = ""

    queues: ClassVar[bool] = False
    experts_choose: ClassVar[bool] = False
    training_factor: ClassVar[float] = 0
    encoder_only: ClassVar[str] = ""
    decoder_caution: ClassVar[str] = ""
    unprunable: ClassVar[str] = "its tasks have the experts that they need; `make export` with PAIR takes them out"
    unexportable: ClassVar[str] = "it chooses experts by task (PAIR exports the dense model of a pair)"

    @property
    def experts_per_token(self) -> float:
        return self.k

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks: pairs or languages, each once."""
        return list(dict.fromkeys(self.task_of(pair) for pair in self.pairs.split()))

    def task_of(self, pair: str) -> str:
        """Return the task of a language pair."""
        source, _, target = pair.partition(":")
        return {"pair": pair, "source": source, "target": target}[self.by]

    def with_pairs(self, pairs: Sequence[str], path: str) -> "TaskConfig":
        """Return the gate of a run with these pairs.

        Raises ValueError if all of them are one task, and if the gate has other pairs already.
        """
        if self.pairs not in ("", " ".join(pairs)):
            raise ValueError(f"{path}.pairs={self.pairs}: a run fills in its own pairs; leave it out")
        gate = replace(self, pairs=" ".join(pairs))
        if len(gate.tasks) < 2:
            raise ValueError(
                f"{path}.by={self.by} makes one task of {', '.join(pairs)}, so that {self.k} of the experts would "
                "serve every token and the others none; choose another by, or another gate"
            )
        return gate

    def check(self, num_experts: int, path: str) -> None:
        checks.choices(num_experts, self.k, path)
        checks.not_negative(self, path, "balance_weight")

    def router_shapes(self, num_experts: int, dim: int) -> Mapping[str, tuple[int, ...]]:
        return {"wt_TE": (len(self.tasks), num_experts)}
