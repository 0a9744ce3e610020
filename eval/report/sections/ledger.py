"""The cost ledger: the cost of each model, and of all bilingual models together against the multilingual one."""

from collections.abc import Mapping, Sequence

from eval.number_format import MISSING, decimal, duration, integer, percent, quantity
from eval.records.ending import MARK, still_improving
from eval.records.run_record import Json
from eval.records.scores import METRICS

DEFAULT_FLOPS_UNIT = "training FLOPs per target token"
MODEL_COLUMNS = (
    "Model",
    "Size",
    "Parameters",
    "Active",
    "FLOPs/token",
    "Tokens",
    "Steps",
    "Training",
    "Tokens/s",
    "MFU",
    "Useful",
    "Best step",
    "Val. loss",
    "Stopped by",
)


def flops_unit(systems: Mapping[str, Sequence[Json]]) -> str:
    """Return the name of the row of FLOPs, such as DEFAULT_FLOPS_UNIT, as the run recorded it."""
    units = (ledger.get("flops_unit") for ledgers in systems.values() for ledger in ledgers)
    return str(next((unit for unit in units if unit), DEFAULT_FLOPS_UNIT))


def total_rows(systems: Mapping[str, Sequence[Json]]) -> list[tuple[str, list[str]]]:
    """Return rows (quantity, a cell for each system) that compare systems. The models of a system are added up.

    Rates (tokens/s, MFU, useful FLOPs) are means weighted by training time.
    """
    columns = list(systems.values())
    rows = [
        ("models", [integer(len(ledgers)) for ledgers in columns]),
        ("parameters", [quantity(_total(ledgers, "parameters")) for ledgers in columns]),
        ("active parameters for a token", [_span(ledgers, "active_parameters") for ledgers in columns]),
        (flops_unit(systems), [_span(ledgers, "flops_per_token") for ledgers in columns]),
        ("target tokens seen", [quantity(_total(ledgers, "tokens")) for ledgers in columns]),
        ("training FLOPs in all", [quantity(_total_flops(ledgers)) for ledgers in columns]),
        ("optimizer steps", [integer(_total(ledgers, "steps")) for ledgers in columns]),
        ("training time", [duration(_total(ledgers, "train_seconds")) for ledgers in columns]),
        (
            "wall time with validation",
            [duration(_total(ledgers, "wall_seconds")) for ledgers in columns],
        ),
        ("device hours", [decimal(_total(ledgers, "device_hours"), 2) for ledgers in columns]),
        ("target tokens per second", [integer(_mean(ledgers, "tokens_per_second")) for ledgers in columns]),
        ("model FLOP utilisation (MFU)", [percent(_mean(ledgers, "mfu")) for ledgers in columns]),
        ("useful of executed FLOPs", [percent(_mean(ledgers, "useful_flops")) for ledgers in columns]),
    ]
    return [(name, cells) for name, cells in rows if any(cell != MISSING for cell in cells)]


def model_rows(systems: Mapping[str, Sequence[Json]]) -> list[list[str]]:
    """Return the cells of MODEL_COLUMNS for every model."""
    return [
        [
            f"{system} {ledger['pair']}" if ledger.get("pair") else system,
            str(ledger.get("size") or MISSING),
            quantity(ledger.get("parameters")),
            quantity(ledger.get("active_parameters")),
            quantity(ledger.get("flops_per_token")),
            quantity(ledger.get("tokens")),
            integer(ledger.get("steps")),
            duration(ledger.get("train_seconds")),
            integer(ledger.get("tokens_per_second")),
            percent(ledger.get("mfu")),
            percent(ledger.get("useful_flops")),
            integer(ledger.get("best_step")),
            _validation(ledger),
            str(ledger.get("stopped") or MISSING) + (f" {MARK}" if still_improving(ledger) else ""),
        ]
        for system, ledgers in systems.items()
        for ledger in ledgers
    ]


def _validation(ledger: Json) -> str:
    """Return the loss of the best validation, and its score if a metric of translations chose it."""
    loss, metric = decimal(ledger.get("validation_loss"), 3), str(ledger.get("validation_metric") or "")
    if not metric:
        return loss
    return f"{loss}, {METRICS[metric].title if metric in METRICS else metric} {decimal(ledger['validation_score'], 2)}"


def _values(ledgers: Sequence[Json], key: str) -> list[float] | None:
    """Return the values of a key, or None if a ledger lacks it, because a partial sum would look like the whole."""
    values = [ledger.get(key) for ledger in ledgers]
    return [float(value) for value in values if value is not None] if values and None not in values else None


def _total(ledgers: Sequence[Json], key: str) -> float | None:
    values = _values(ledgers, key)
    return None if values is None else sum(values)


def _total_flops(ledgers: Sequence[Json]) -> float | None:
    rates, tokens = _values(ledgers, "flops_per_token"), _values(ledgers, "tokens")
    if rates is None or tokens is None:
        return None
    return sum(rate * count for rate, count in zip(rates, tokens, strict=True))


def _mean(ledgers: Sequence[Json], key: str) -> float | None:
    values, seconds = _values(ledgers, key), _values(ledgers, "train_seconds")
    if values is None or seconds is None or sum(seconds) <= 0:
        return None
    return sum(value * weight for value, weight in zip(values, seconds, strict=True)) / sum(seconds)


def _span(ledgers: Sequence[Json], key: str) -> str:
    values = _values(ledgers, key)
    if values is None:
        return MISSING
    low, high = quantity(min(values)), quantity(max(values))
    return low if low == high else f"{low} to {high}"
