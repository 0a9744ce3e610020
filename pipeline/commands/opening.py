"""The first lines of a command that makes a run: what it does, where, and how long by the estimate of `make plan`."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.number_format import quantity, rough_duration
from pipeline.config import RunConfig
from pipeline.dag.cleaning import ALL
from pipeline.jobs.default_precision import imitates_bf16
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.live import wrapped
from pipeline.model.flops import count_parameters
from pipeline.parallel.layout import layout_of
from pipeline.plan.devices import device_names, load_device
from pipeline.plan.plan import make_plan, workload_of
from pipeline.plan.workload import Device, Setup

logger = logging.getLogger(__name__)

GPUS = Path("/proc/driver/nvidia/gpus")  # has a directory for each GPU, with its model in the file `information`
LISTED = 8  # language pairs that are named


def announce(config: RunConfig, *lines: str) -> None:
    """Log the opening lines. lines: those of the command, after the one that names the run and its pairs."""
    for line in (f"{config.name}: recipe {config.recipe}, {_describe_pairs(config.pairs)}", *filter(None, lines)):
        logger.info("%s", wrapped(line, sys.stderr))


def _describe_pairs(pairs: Sequence[str]) -> str:
    if list(pairs) == [ALL]:
        return "all language pairs of the corpus"
    number = f"{len(pairs)} language pairs: " if len(pairs) > 1 else ""
    return number + ", ".join(pairs[:LISTED]) + (", …" if len(pairs) > LISTED else "")


def describe_model(config: RunConfig) -> str:
    """Return a line on the main model and its size."""
    kind = f"MoE Transformer, {config.model.moe.num_experts} experts" if config.model.moe_layers() else "Transformer"
    workload = workload_of(config)
    sizes = {"source_vocabulary": workload.source_vocabulary, "target_vocabulary": workload.target_vocabulary}
    count = count_parameters(config.model, **sizes, shared=config.vocab.shared)
    active = f", {quantity(count.active)} of them active for a token" if count.active < count.total else ""
    most = "at most " if config.vocab.extend else ""  # how many pieces it adds is known after the text is read
    return f"model: {kind}, {most}{quantity(count.total)} parameters{active}"


def describe_place(runtime: RuntimeConfig) -> str:
    """Return a line on the devices of a training."""
    number = f"{runtime.processes} process{'es' if runtime.processes > 1 else ''}"
    if runtime.launcher != "local":
        place = (
            "on the nodes of this Slurm job" if runtime.launcher == "slurm" else f"on the hosts of {runtime.hostfile}"
        )
        return f"where: {place}, {number}"
    gpus = _gpus(runtime)
    devices = (
        f"one GPU each ({gpus[0]})" if gpus else f"{runtime.threads} thread{'s' if runtime.threads > 1 else ''} each"
    )
    idle = _models_of_gpus() if runtime.device == "cpu" else []
    note = f"; its GPU is not used ({idle[0]}): add RUNTIME=gpu to train on it" if idle else ""
    return f"where: this machine, {os.cpu_count()} CPU cores; {number} of {devices}{note}"


def describe_time(config: RunConfig, seconds: float | None) -> str:
    """Return a line on the time of the training, empty where no estimate is known. seconds: the estimate."""
    if seconds is None:
        return ""
    then = "; the bilingual models come after it" if config.baselines.tiers else ""
    about = f"about {rough_duration(seconds)}" if seconds >= 60 else "less than a minute"
    return f"time: {about} for the training, as make plan estimates{then}"


def describe_most_time(seconds: float | None) -> str:
    """Return a line on the time of models that stop by themselves, empty where no estimate is known.

    seconds: the estimate of their whole budgets.
    """
    return "" if seconds is None else f"time: at most {rough_duration(seconds)}; most models stop long before"


def seconds_here(config: RunConfig) -> float | None:
    """Estimate as `training_seconds` does, but not for a processor that has to imitate bf16, whose speed is unknown."""
    return None if imitates_bf16(config.runtime.device, config.train.precision) else training_seconds(config)


def training_seconds(config: RunConfig) -> float | None:
    """Estimate the time of the main training by the plan of its recipe. None for devices that `make plan` lacks."""
    runtime = config.runtime
    if (device := _device(runtime)) is None:
        return None
    layout = layout_of(config.layout, runtime)
    setup = Setup(layout=layout, zero_stage=runtime.zero_stage, recompute=runtime.recompute)
    plan = make_plan(workload_of(config), setup, device)
    return plan.budget.tokens / plan.step.tokens_per_second


def _device(runtime: RuntimeConfig) -> Device | None:
    """Return the device of each process as `make plan` knows it, None where it does not."""
    if runtime.launcher != "local":
        return None
    if gpus := _gpus(runtime):
        names = [name for name in device_names() if name.upper() in gpus[0].upper()]
        return load_device(names[0]) if names else None
    return load_device("cpu") if runtime.device != "cuda" and runtime.threads == 1 else None


def _gpus(runtime: RuntimeConfig) -> list[str]:
    """Return the models of this machine's GPUs if the training will use them."""
    models = _models_of_gpus()
    return models if runtime.device != "cpu" and runtime.processes <= len(models) else []


def _models_of_gpus() -> list[str]:
    """Return the model of each GPU of this machine, as NVIDIA's driver names it, without the wait for torch."""
    files = sorted(GPUS.glob("*/information"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
