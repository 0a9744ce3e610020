"""The components of a model that users name, to choose which parameters train and at which rate. Free of torch."""

from collections.abc import Collection, Iterable, Mapping

KINDS = ("embeddings", "norms", "attention", "feed_forward", "experts", "routers")  # a parameter is of one of them
SIDES = ("encoder", "decoder")  # and of one side at most
COMPONENTS = (*KINDS, *SIDES)
ALL, ADAPTERS = "all", "adapters"  # choices of what trains, instead of a list of components
MARK = ".adapters."  # in the names of the parameters of adapters


def kind_of(name: str) -> str:
    """Return the one of `KINDS` that a parameter belongs to. The gate to a shared network is a router."""
    prefix, _, leaf = name.rpartition(".")
    if leaf.endswith("_VM"):
        return "embeddings"
    if prefix.endswith("norm"):
        return "norms"
    if "_attention." in name:
        return "attention"
    if ".experts." in name:
        return "experts"
    return "routers" if ".router." in name or leaf == "wc_M" else "feed_forward"


def components_of(name: str) -> set[str]:
    """Return all components of a parameter: its kind, and its side unless it is an embedding."""
    return {kind_of(name), name.partition(".")[0]} & {*COMPONENTS}


def is_adapter(name: str) -> bool:
    """Return true for a parameter of an adapter."""
    return MARK in name


def is_trainable(name: str, trainable: str | Collection[str]) -> bool:
    """Return true if a parameter trains. trainable: components, `ALL` or `ADAPTERS`."""
    if trainable == ADAPTERS:
        return is_adapter(name)
    return trainable == ALL or not components_of(name).isdisjoint(trainable)


def rate_factor(name: str, factors: Mapping[str, float]) -> float:
    """Return the factor on a parameter's learning rate: the product of those of its components."""
    product = 1.0
    for component in components_of(name) & factors.keys():
        product *= factors[component]
    return product


def check_names(key: str, components: Iterable[str]) -> None:
    """Raise ValueError for a name that is no component."""
    for component in components:
        if component not in COMPONENTS:
            raise ValueError(f"{key}: {component!r} is not one of {', '.join(COMPONENTS)}")


def check_present(key: str, components: Iterable[str], names: Iterable[str]) -> None:
    """Raise ValueError for a component that no parameter belongs to. names: of the parameters that may train."""
    there = set[str]().union(*map(components_of, names))
    for component in components:
        if component not in there:
            raise ValueError(
                f"{key}: no parameter of {component} is there to train; there are those of "
                f"{', '.join(c for c in COMPONENTS if c in there)}"
            )
