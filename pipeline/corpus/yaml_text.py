"""YAML that a stranger may have written: manifests of corpora, and the cards of data sets."""

from collections.abc import Iterable
from typing import Any

import yaml

_MAX_DEPTH = 50  # of lists and mappings within one another
_MAX_ALIASED = 1 << 20  # characters and values that all aliases stand for


def load_yaml(text: str, loader: Any = yaml.SafeLoader) -> Any:
    """Content of a YAML text. loader: of the library; with its BaseLoader every scalar is text.

    Raises ValueError for what is no YAML, for lists and mappings nested too deep, and for aliases that stand for more
    than a megabyte: a few hundred bytes of aliases of aliases can stand for gigabytes.
    """
    try:
        _check(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _check(events: Iterable[Any]) -> None:
    """Judge a text by its events, which take no more memory than they are long."""
    sizes: dict[str | None, int] = {}  # by anchor, once it is known
    outer: list[tuple[str | None, int]] = []  # anchor of every list and mapping around an event, and where it begins
    total = aliased = 0
    for event in events:
        size = 0
        if isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor, _MAX_ALIASED + 1)  # an alias within its own anchor has no end
            aliased += size
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value)
            sizes[event.anchor] = size
        elif isinstance(event, yaml.CollectionStartEvent):
            outer.append((event.anchor, total))
            size = 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, start = outer.pop()
            sizes[anchor] = total - start
        total += size
        where = event.start_mark.line + 1
        if len(outer) > _MAX_DEPTH:
            raise ValueError(f"line {where}: nested deeper than {_MAX_DEPTH} lists and mappings; make it flat")
        if aliased > _MAX_ALIASED:
            raise ValueError(
                f"line {where}: alias *{event.anchor} stands for itself, for nothing, or for more than a megabyte; "
                "write out what it stands for"
            )
