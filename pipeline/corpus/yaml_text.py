"""A reader of YAML from strangers, such as manifests of corpora and cards of data sets."""

from collections.abc import Iterable
from typing import Any

import yaml

_MAX_DEPTH = 50  # levels of lists and mappings
_MAX_ALIASED = 1 << 20  # most characters and values that all aliases stand for


def load_yaml(text: str, loader: Any = yaml.SafeLoader) -> Any:
    """Return the content of a YAML text.

    loader: a loader of the library; with BaseLoader every scalar is text.
    Raises ValueError for text that is no YAML, for lists and mappings nested too deep, and for aliases that stand for
    more than a megabyte. A few hundred bytes of aliases of aliases can stand for gigabytes.
    """
    try:
        _check(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _check(events: Iterable[Any]) -> None:
    """Raise ValueError for a dangerous text, from its events, whose memory is bounded by the length of the text."""
    sizes: dict[str | None, int] = {}  # size by anchor, of anchors that have ended
    outer: list[tuple[str | None, int]] = []  # anchor and start of every list and mapping around an event
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
        line = event.start_mark.line + 1
        if len(outer) > _MAX_DEPTH:
            raise ValueError(f"line {line}: nested deeper than {_MAX_DEPTH} lists and mappings; make it flat")
        if aliased > _MAX_ALIASED:
            raise ValueError(
                f"line {line}: alias *{event.anchor} stands for itself, for nothing, or for more than a megabyte; "
                "write out what it stands for"
            )
