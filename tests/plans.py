"""A small workload and setups of it, for tests of the planner."""

from typing import Any

from pipeline.batch.config import GroupShape
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.parallel.layout import GSHARD, Layout
from pipeline.plan.workload import Device, Setup, Workload

CUT = {"H": ("model",), "N": ("model",), "V": ("model",)}
TABLES = {
    "gshard": GSHARD,
    "model": {**GSHARD, **CUT},
    "experts not handed over": {"G": ("data",), "E": ("expert",), "N": ("model",)},
}


def model_of(moe: MoEConfig | None = None, **changes: Any) -> ModelConfig:
    sizes = {"dim": 16, "ffn_dim": 32, "heads": 4, "encoder_layers": 3, "decoder_layers": 2, "dropout": 0.1}
    return ModelConfig(**{**sizes, **changes}, moe=moe or MoEConfig(num_experts=8, expert_dim=24))


def workload_of(**changes: Any) -> Workload:
    values: dict[str, Any] = {
        "recipe": "small",
        "model": model_of(),
        "source_vocabulary": 48,
        "target_vocabulary": 64,
        "shared": False,
        "shape": GroupShape(rows=2, source=24, target=20),
        "groups_per_step": 32,
        "precision": "fp32",
        "optimizer": "adamw",
        "ema": False,
        "max_tokens": 1_000_000,
    }
    return Workload(**{**values, **changes})


def setup_of(table: str = "gshard", *, data: int = 1, expert: int = 1, model: int = 1, **changes: Any) -> Setup:
    layout = Layout(table=TABLES[table], sizes={"data": data, "expert": expert, "model": model})
    return Setup(**{"layout": layout, "zero_stage": 1, "recompute": "none", **changes})


def device_of(**changes: Any) -> Device:
    """Return a device with 1 TFLOP/s, memory of 100 GB/s, a link of 10, a network of 1, and nodes of 4."""
    values: dict[str, Any] = {
        "name": "round",
        "kind": "cuda",
        "source": "none",
        "flops": {"fp32": 1e12, "bf16": 2e12},
        "memory": 1e10,
        "resident": 0.0,
        "bandwidth": 1e11,
        "launch": 0.0,
        "node": 4,
        "link": 1e10,
        "network": 1e9,
        "latency": 0.0,
        "network_latency": 0.0,
        "price": 2.0,
    }
    return Device(**{**values, **changes})
