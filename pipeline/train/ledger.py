"""The costs of a run: the equal-FLOPs ledger, and a line about it for people."""

from typing import Any

from eval.records.scores import METRICS
from pipeline.jobs.matmul import matmul_library
from pipeline.model.config import ModelConfig
from pipeline.model.flops import ParameterCount
from pipeline.parallel.layout import Layout
from pipeline.train.config import LOSS
from pipeline.train.totals import Progress


def ledger(
    progress: Progress,
    model: ModelConfig,
    parameters: ParameterCount,
    *,
    peak: float,
    stopped: str,
    processes: int,
    layout: Layout,
    metric: str = LOSS,
) -> dict[str, Any]:
    """Return the costs of a finished run. FLOPs that several processes repeat count once.

    flops_per_token: nominal training FLOPs per target token, by which systems of equal cost are chosen.
    mfu: useful FLOPs over time and over `peak`, the FLOP/s of matmuls on the run's devices together.
    useful_flops: useful over executed FLOPs.
    matmul_library: the library of float32 products on a CPU.
    validation_loss, validation_score: of the best validation. There is a score if `metric`, by which it was chosen, is
        not the loss.
    augmented: rows that augmentation drew, changed and left plain because they were too long, by kind.
    """
    p = progress
    experts = f", {model.moe.num_experts} experts" if model.moe.num_experts else ""
    return {
        "parameters": parameters.total,
        "active_parameters": parameters.active,
        "flops_per_token": p.nominal_flops / p.target_tokens,
        "flops_unit": "training FLOPs per target token",
        "tokens": p.target_tokens,
        "steps": p.step,
        "train_seconds": p.train_seconds,
        "device_hours": p.train_seconds * processes / 3600,
        "mfu": p.useful_flops / p.train_seconds / peak,
        "matmul_peak": peak,
        "matmul_library": matmul_library(),
        "tokens_per_second": p.target_tokens / p.train_seconds,
        "useful_flops": p.useful_flops / p.executed_flops,
        "best_step": p.best_step,
        "validation_loss": p.best_loss,
        **({"validation_metric": metric, "validation_score": p.best_score} if metric != LOSS else {}),
        "stopped": stopped,
        "size": f"d={model.dim}, {model.encoder_layers}+{model.decoder_layers} layers{experts}",
        "processes": processes,
        "ep": layout.sizes["expert"],
        "mp": layout.sizes["model"],
        "layout": {letter: list(axes) for letter, axes in layout.table.items()},
        **({"augmented": p.augmented} if p.augmented else {}),
    }


def summary(progress: Progress, peak: float, metric: str = LOSS) -> str:
    """Return one line about the costs, for people. metric: the measure by which a validation was the best."""
    p = progress
    score = f"{METRICS[metric].title} {p.best_score:.2f} and " if metric != LOSS else ""
    return (
        f"{p.step} steps, {p.target_tokens:,} target tokens in {p.train_seconds:.0f} s "
        f"({p.target_tokens / p.train_seconds:,.0f}/s); MFU {p.useful_flops / p.train_seconds / peak:.1%} of a "
        f"measured matmul peak of {peak / 1e9:.0f} GFLOP/s; useful over executed FLOPs "
        f"{p.useful_flops / p.executed_flops:.3f}; best validation {score}cross-entropy {p.best_loss:.4f} "
        f"at step {p.best_step}"
    )
