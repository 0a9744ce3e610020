"""Dataclasses from nested mappings, with errors that name the key and the remedy."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pipeline.spelling import suggestion

T = TypeVar("T")
_QUOTING = '; quote it ("no" is Norwegian, no is a boolean)'


def build(kind: type[T], values: Mapping[str, Any], path: str = "") -> T:
    """Build the dataclass `kind` from a mapping, with nested dataclasses, lists, dicts and unions of them.

    A union's members are told apart by a field `kind` with one literal value each.
    path: the place of the mapping in the configuration, for messages.
    Raises ValueError for a key that does not exist (naming the nearest), a missing key, and a value of another type.
    """
    hints = _hints(kind)  # type: ignore[arg-type]
    by_name = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in by_name:
            raise ValueError(f"{_join(path, key)} does not exist{suggestion(str(key), by_name)}")
    arguments = {}
    for name, field in by_name.items():
        if name in values:
            arguments[name] = _convert(hints[name], values[name], _join(path, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{_join(path, name)} is not set")
    return kind(**arguments)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _convert(hint: Any, value: Any, path: str, *, optional: bool = False) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            parts = ", ".join(f"{name}: …" for name in _hints(hint))
            if isinstance(value, str) and "kind" in _hints(hint):
                raise ValueError(f"{path}={value!r} must be a mapping; write {path}.kind={value}")
            raise ValueError(f"{path}={value!r} must be a mapping, as {{{parts}}}{', or null' if optional else ''}")
        return build(hint, value, path)
    if get_origin(hint) in (list, tuple):
        if not isinstance(value, list | tuple):
            names = ",".join(value.replace(",", " ").split()) if isinstance(value, str) else value
            example = "" if value in (None, "") else f", as [{names}]"
            raise ValueError(f"{path}={value!r} must be a list{example}")
        items = [_convert(get_args(hint)[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
        return items if get_origin(hint) is list else tuple(items)
    if get_origin(hint) is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ValueError(
                f"{path}={value!r} must be a mapping with names as keys{_QUOTING if isinstance(value, Mapping) else ''}"
            )
        return {key: _convert(get_args(hint)[1], item, _join(path, key)) for key, item in value.items()}
    if get_origin(hint) in (Union, UnionType):
        return _convert_union(get_args(hint), value, path)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{path}={value!r} is not one of {', '.join(map(str, get_args(hint)))}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool) and (type(value) is not hint):
        raise ValueError(
            f"{path}={value!r} must be of type {hint.__name__}, not {type(value).__name__}{_quoting([hint], value)}"
        )
    return value


def _convert_union(members: tuple[Any, ...], value: Any, path: str) -> Any:
    """Return None where it is allowed (false means the same), else the member whose `kind` the mapping names."""
    if NoneType in members and (value is None or (value is False and bool not in members)):
        return None
    kinds = [member for member in members if member is not NoneType]
    if len(kinds) == 1:
        return _convert(kinds[0], value, path, optional=True)
    if not all(is_dataclass(member) for member in kinds):
        return _convert_plain(kinds, value, path)
    members_by_kind = {get_args(_hints(member)["kind"])[0]: member for member in kinds}
    if not isinstance(value, Mapping) or "kind" not in value:
        raise ValueError(f"{path}={value!r} must be a mapping with kind: one of {', '.join(members_by_kind)}")
    name = value["kind"]
    if name not in members_by_kind:
        raise ValueError(f"{path}.kind={name!r} does not exist{suggestion(str(name), members_by_kind)}")
    own_names, *names_of_kinds = [{field.name for field in fields(kind)} for kind in (members_by_kind[name], *kinds)]
    for key in value:
        if key not in own_names and any(key in names for names in names_of_kinds):
            raise ValueError(f"{_join(path, str(key))} does not exist with {path}.kind={name}; leave it out")
    return build(members_by_kind[name], value, path)


def _convert_plain(members: list[Any], value: Any, path: str) -> Any:
    """Convert the value to the member, among plain types and lists, whose type it has."""
    for member in members:
        if isinstance(value, get_origin(member) or member):
            return _convert(member, value, path)
    names = " or ".join((get_origin(member) or member).__name__ for member in members)
    raise ValueError(f"{path}={value!r} must be of type {names}, not {type(value).__name__}{_quoting(members, value)}")


def _quoting(members: list[Any], value: Any) -> str:
    """Return the advice to quote a value that YAML does not read as the text that it should be."""
    return _QUOTING if str in members and isinstance(value, bool | int | float | date) else ""


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
