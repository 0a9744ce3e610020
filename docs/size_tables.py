"""The tables of recipes/sizes in docs/sizes.md: the recipe for an amount of text and a machine, and its settings."""

from typing import Any

from eval.number_format import integer, quantity
from pipeline.config import RunConfig, load_config
from pipeline.model.flops import count_parameters
from pipeline.plan.command import answer
from pipeline.plan.config import load_plan
from pipeline.plan.search import gib
from pipeline.plan.table import device_hours, dollars

# The machines that the table has for each recipe: numbers and names of devices.
MACHINES = {
    "small": ((1, "a100"), (1, "h100")),
    "base": ((1, "a100"), (1, "h100"), (8, "a100"), (8, "h100")),
    "big": ((1, "h100"), (8, "a100"), (8, "h100")),
}


def plans(recipe: str, devices: int, device: str) -> list[dict[str, Any]]:
    """Return the plans of `make plan` for a recipe and for its mixture of experts."""
    words = [f"recipes=[sizes/{recipe},sizes/{recipe}_moe]", f"devices={devices}", f"device={device}"]
    planned: list[dict[str, Any]] = answer(load_plan(words)).values["plans"]
    return planned


def machines_table() -> str:
    """Return the memory, time and price of every recipe on its machines."""
    rows = [
        "| training pairs | `RECIPE` | GPUs | `RUNTIME` | GiB of a GPU | hours | GPU hours | price |",
        "|---|---|---|---|---:|---:|---:|---:|",
    ]
    amounts = [f"up to {integer(tier.up_to)}" if tier.up_to else "more" for tier in _config("base").baselines.tiers[1:]]
    for (recipe, machines), amount in zip(MACHINES.items(), amounts, strict=True):
        for devices, device in machines:
            planned = plans(recipe, devices, device)
            budgets = [plan["budget"] for plan in planned]
            cells = [
                [gib(plan["memory"]["total"]) for plan in planned],
                [device_hours(budget["device_hours"] / devices) for budget in budgets],
                [device_hours(budget["device_hours"]) for budget in budgets],
                [dollars(budget["cost"]) for budget in budgets],
            ]
            names = f"`sizes/{recipe}`; `sizes/{recipe}_moe`"
            runtime = "gpu" if devices == 1 else "node"
            numbers = " | ".join("; ".join(pair) for pair in cells)
            rows.append(f"| {amount} | {names} | {devices} {device} | `{runtime}` | {numbers} |")
    return "\n".join(rows)


def settings_table() -> str:
    """Return the settings of the recipes."""
    rows = [
        "| `sizes/…` | vocabulary | width, hidden, heads, layers | dropout | tokens of a step | rate, warm-up "
        "| `train.max_tokens` | experts of hidden | parameters |",
        "|---|---:|---|---:|---:|---|---:|---|---|",
    ]
    for recipe in MACHINES:
        dense, moe = _config(recipe), _config(f"{recipe}_moe")
        model, train, shape = dense.model, dense.train, dense.batch.shapes[-1]
        layers = f"{model.encoder_layers}+{model.decoder_layers}"
        cells = [
            f"`{recipe}`",
            integer(dense.vocab.source_size),
            f"{integer(model.dim)}, {integer(model.ffn_dim)}, {model.heads}, {layers}",
            str(model.dropout),
            integer(dense.batch.groups_per_step * shape.rows * shape.target),
            f"{train.learning_rate:g}, {integer(train.warmup_steps)}",
            _words(train.max_tokens),
            f"{moe.model.moe.num_experts} of {integer(moe.model.moe.expert_dim)}",
            f"{_parameters(dense)}; {_parameters(moe)}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _words(tokens: int) -> str:
    return f"{tokens / 1e9:g} billion" if tokens >= 1e9 else f"{tokens / 1e6:g} million"


def _config(recipe: str) -> RunConfig:
    return load_config([f"recipes=sizes/{recipe}"])


def _parameters(config: RunConfig) -> str:
    vocab = config.vocab
    sizes = {"source_vocabulary": vocab.source_size, "target_vocabulary": vocab.target_size}
    return quantity(count_parameters(config.model, **sizes, shared=vocab.shared).total)
