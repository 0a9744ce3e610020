"""Checks of the settings of gates. `path` is the key that an error names. Each check raises ValueError."""


def choices(available: int, k: int, path: str, why: str = "", what: str = "experts") -> None:
    """Refuse fewer than one choice, and more choices than there are experts.

    why: words for the choices where a user did not set k.
    what: words for the things to choose from.
    """
    if k < 1:
        raise ValueError(f"{path}.k={k} must be at least 1")
    if k > available:
        request = why or f"{path}.k={k} choices"
        raise ValueError(f"{path}: {request} need at least {k} {what}, there are {available}")


def groups(num_experts: int, num_groups: int, path: str) -> None:
    """Refuse a number of groups that does not divide the experts."""
    if num_groups < 2 or num_experts % num_groups:
        divisors = [n for n in range(2, num_experts) if num_experts % n == 0]
        remedy = f"choose one of {', '.join(map(str, divisors))}" if divisors else "no number of groups does"
        raise ValueError(f"{path}.groups={num_groups} does not divide model.moe.num_experts={num_experts}; {remedy}")


def capacity_factor(factor: float, path: str) -> None:
    """Refuse a capacity of no slots."""
    if not factor > 0:
        raise ValueError(
            f"{path}.capacity_factor={factor} gives experts no slot and would drop every token; 1.0 is a fair share"
        )


def at_most_experts(factor: float, num_experts: int, path: str) -> None:
    """Refuse a capacity with which a token would visit more experts than there are."""
    if factor > num_experts:
        raise ValueError(f"{path}.capacity_factor={factor} is more than the {num_experts} experts there are")


def not_negative(gate: object, path: str, *names: str) -> None:
    """Refuse negative values of these fields of a gate."""
    for name in names:
        if getattr(gate, name) < 0:
            raise ValueError(f"{path}.{name}={getattr(gate, name)} must not be negative")


def threshold_weight(weight: float, path: str) -> None:
    """Refuse a weight without which thresholds would not learn."""
    if not weight > 0:
        raise ValueError(f"{path}.threshold_weight={weight} must be positive: thresholds learn by it")
