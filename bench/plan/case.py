"""A training configuration that is small enough to run here, and its workload and setup for the planner."""

from dataclasses import dataclass

from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig, MoEConfig, Recompute
from pipeline.parallel.layout import GSHARD, Layout
from pipeline.plan.workload import Setup, Workload

MODEL_AXIS = {"H": ("model",), "N": ("model",), "V": ("model",)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training configuration.

    layers: layers of the encoder, and of the decoder.
    experts: experts of every second layer, 0 for a dense model.
    world, ep, mp: sizes of the mesh; mp cuts heads, hidden units and vocabulary.
    rows, length: rows of a group, and source and target tokens of each row.
    groups: groups of a step.
    biases: projections have biases.
    """

    dim: int
    layers: int
    experts: int = 0
    world: int = 1
    ep: int = 1
    mp: int = 1
    zero_stage: int = 1
    recompute: Recompute = "none"
    precision: str = "fp32"
    optimizer: str = "adamw"
    vocabulary: int = 8000
    rows: int = 8
    length: int = 128
    groups: int = 4
    biases: bool = False

    @property
    def name(self) -> str:
        words = [f"d={self.dim} {self.layers}+{self.layers} E={self.experts} world={self.world}"]
        words += [f"ep={self.ep}"] if self.ep > 1 else []
        words += [f"mp={self.mp}"] if self.mp > 1 else []
        words += [f"ZeRO-{self.zero_stage}"] if self.zero_stage > 1 else []
        words += [f"recompute={self.recompute}"] if self.recompute != "none" else []
        words += ["biases"] if self.biases else []
        words += [word for word in (self.precision, self.optimizer) if word not in ("fp32", "adamw")]
        return " ".join(words)

    @property
    def workload(self) -> Workload:
        model = ModelConfig(
            dim=self.dim,
            ffn_dim=4 * self.dim,
            heads=max(4, self.dim // 64),
            encoder_layers=self.layers,
            decoder_layers=self.layers,
            dropout=0.1,
            biases=self.biases,
            moe=MoEConfig(num_experts=self.experts, expert_dim=4 * self.dim) if self.experts else MoEConfig(),
        )
        return Workload(
            recipe=self.name,
            model=model,
            source_vocabulary=self.vocabulary,
            target_vocabulary=self.vocabulary,
            shared=True,
            shape=GroupShape(rows=self.rows, source=self.length, target=self.length),
            groups_per_step=self.groups,
            precision=self.precision,
            optimizer=self.optimizer,
            ema=False,
            max_tokens=0,
        )

    @property
    def setup(self) -> Setup:
        sizes = {"data": self.world // self.ep // self.mp, "expert": self.ep, "model": self.mp}
        table = {**GSHARD, **(MODEL_AXIS if self.mp > 1 else {})}
        return Setup(layout=Layout(table=table, sizes=sizes), zero_stage=self.zero_stage, recompute=self.recompute)
