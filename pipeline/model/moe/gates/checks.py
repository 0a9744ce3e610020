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


def groups(num_experts: int, num_groups: int, path: str, *, name: str = "groups", least: int = 2) -> None:
    """Refuse a number of groups that does not divide the experts. name: the field that has it. least: the smallest."""
    if num_groups < least or num_experts % num_groups:
        divisors = [n for n in range(least, num_experts) if num_experts % n == 0]
        remedy = f"choose one of {', '.join(map(str, divisors))}" if divisors else f"no number of {name} does"
        raise ValueError(f"{path}.{name}={num_groups} does not divide model.moe.num_experts={num_experts}; {remedy}")


def nodes(num_experts: int, k: int, expert_nodes: int, max_nodes: int, path: str) -> None:
    """Refuse nodes of unequal size, and a limit under which a token cannot have k experts."""
    groups(num_experts, expert_nodes, path, name="expert_nodes", least=1)
    if not 1 <= max_nodes <= expert_nodes:
        raise ValueError(f"{path}.max_nodes={max_nodes} must lie in 1..{expert_nodes}, the number of expert_nodes")
    size = num_experts // expert_nodes
    if max_nodes < expert_nodes and (k % max_nodes or k > max_nodes * size):
        legal = [m for m in range(1, expert_nodes) if k % m == 0 and k <= m * size]
        choices = " or ".join(map(str, [*legal, expert_nodes]))
        raise ValueError(
            f"{path}.max_nodes={max_nodes} with k={k}: k / max_nodes experts of a node must be a whole number of at "
            f"most {size}, which it has; choose max_nodes={choices} ({expert_nodes} is no limit)"
        )


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
