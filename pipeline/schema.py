"""Dataclasses from nested mappings, with errors that name the key and the remedy."""

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def build(kind: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """An instance of the dataclass `kind`; nested dataclasses and lists of them are built too.

    path: where the mapping stands, for messages. Raises ValueError on a key that does not exist (naming the nearest),
    one that is missing, and a value of another type.
    """
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ValueError(f"{_join(path, key)} does not exist{suggestion(key, known)}")
    arguments = {}
    for name, field in known.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], _join(path, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{_join(path, name)} is not set")
    return kind(**arguments)


def suggestion(word: str, known: Any) -> str:
    """`; did you mean X?` with the nearest known words, or what exists."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known)}"


def _convert(hint: Any, value: Any, path: str) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise ValueError(f"{path}={value!r} must be a mapping")
        return build(hint, value, path)
    if get_origin(hint) is list:
        if not isinstance(value, list):
            raise ValueError(f"{path}={value!r} must be a list")
        return [_convert(get_args(hint)[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool) and (type(value) is not hint):
        raise ValueError(f"{path}={value!r} must be of type {hint.__name__}, not {type(value).__name__}")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
