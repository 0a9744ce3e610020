"""The keys of commands with their types, defaults and meanings, for `--help` and for the page of settings.

Types come from the dataclasses of the configuration, defaults from configs/, and meanings from the line `name: meaning`
of a class's docstring (or the comment after its field). Of commands with a file configs/<command>.yaml, the comments in
that file are the meanings.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pipeline.commands.table import Command, function
from pipeline.config import ROOT
from pipeline.decode.config import DecodeConfig
from pipeline.jobs.runtime import RuntimeConfig

_SETTING = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?P<value>[^#]*?)(?: +# (?P<meaning>.*))?$")
_CARRIED = ("defaults", "runtime")  # mappings of configs/<command>.yaml that declare no key of the command


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a command.

    type, default: as a user writes them, values between backticks.
    """

    key: str
    type: str
    default: str
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """The keys of one dataclass. path: what they have in common, empty for the run. kind: of one of several classes."""

    path: str
    kind: str
    keys: tuple[Key, ...]


def sections(config: type, path: str, defaults: Any, tabulated: set[type]) -> Iterator[Section]:
    """Yield the keys of a dataclass, then those of the dataclasses in its fields.

    path: the key of the dataclass, empty for the run.
    defaults: its values in configs/, as far as they are known.
    tabulated: dataclasses that have a section already.
    """
    tabulated.add(config)
    one_of_several = len(get_args(get_type_hints(config).get("kind"))) == 1
    rows, parts = [], []
    for field in fields(config):
        hint = get_type_hints(config)[field.name]
        value = defaults.get(field.name, MISSING) if isinstance(defaults, dict) else MISSING
        key = f"{path}.{field.name}".lstrip(".")
        new = [member for member in _dataclasses(hint) if member not in tabulated]
        tabulated.update(new)
        plural = ".NAME" if get_origin(hint) is dict else "[]" if get_origin(hint) is list else ""
        kinds = value.get("kind") if isinstance(value, dict) else None
        parts += [(member, key + plural, value if getattr(member, "kind", None) == kinds else {}) for member in new]
        text = meaning(config, field.name)
        rows.append(
            Key(key=key, type=_type(hint), default=_default(field, value, bool(_dataclasses(hint))), meaning=text)
        )
    yield Section(path=path, kind=getattr(config, "kind", "") if one_of_several else "", keys=tuple(rows))
    for member, key, value in parts:
        yield from sections(member, key, value, tabulated)


def meaning(config: type, name: str) -> str:
    """Return what a key means, or an empty text.

    The meaning is in the docstring of the dataclass, in the comment after its field, or in the docstring of another
    dataclass of the same module that it refers to by name, as in "the other fields are those of Top2Config". A mapping
    without a meaning is described by the beginning of the docstring of its own dataclass.
    """
    hint = get_type_hints(config)[name]
    if name == "kind" and len(get_args(hint)) == 1:
        return "names this kind"
    meanings = _documented(config)[1]
    if name in meanings:
        return _sentence(meanings[name])
    comment = re.search(rf"^    {name}: [^#\n]*# (.*)$", inspect.getsource(config), re.MULTILINE)
    if comment:
        return _sentence(comment[1])
    for word in re.findall(r"[A-Z]\w+", inspect.getdoc(config) or ""):
        other = getattr(sys.modules[config.__module__], word, None)
        if not (isinstance(other, type) and is_dataclass(other)) or other is config:
            continue
        if name in {field.name for field in fields(other)}:
            return meaning(other, name)
    members = _dataclasses(hint)
    return (_sentence(_documented(members[0])[0]) or "settings of their own") if members else ""


def _documented(config: type) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring up to its first field, and the meaning of every field that it has."""
    names = "|".join(field.name for field in fields(config))
    head = rf"(?:^|(?<=[\s.;(]))(?P<names>(?:{names})(?:,? (?:and )?(?:{names}))*): "
    text = " ".join(re.sub(r"\n\s*\n", "\n<end> ", inspect.getdoc(config) or "").split())
    matches = list(re.finditer(head, text))
    ends = [*(match.start() for match in matches), len(text)]
    meanings = {
        name: text[match.end() : end].partition("<end>")[0]
        for match, end in reversed(list(zip(matches, ends[1:], strict=True)))
        for name in re.findall(r"\w+", match["names"])
    }
    return text[: ends[0]].partition("<end>")[0], meanings


def has_file(command: Command) -> bool:
    """Return whether a command has a file in configs/ of its own."""
    return command.file != "config" and (ROOT / "configs" / f"{command.file}.yaml").exists()


def settings(command: Command) -> Iterator[Key]:
    """Yield every setting in the file of a command."""
    config = get_type_hints(function(command.load))["return"]
    parents: list[tuple[int, str]] = []
    for line in (ROOT / "configs" / f"{command.file}.yaml").read_text(encoding="utf-8").splitlines():
        match = _SETTING.match(line)
        if match is None:
            continue
        indent = len(match["indent"])
        parents = [parent for parent in parents if parent[0] < indent]
        names = [*(name for _, name in parents), match["key"]]
        if not match["value"].strip():
            parents.append((indent, match["key"]))
        elif names[0] not in _CARRIED:
            owners = [c for c in (DecodeConfig, RuntimeConfig) if match["key"] in {field.name for field in fields(c)}]
            text = match["meaning"] or (meaning(owners[0], match["key"]) if owners else "")
            hint = _hint(DecodeConfig, names[1:]) if names[0] == "decode" else _hint(config, names)
            yield Key(
                key=".".join(names), type=_type(hint), default=_value(match["value"].strip()), meaning=_sentence(text)
            )


def _hint(config: type, names: Sequence[str]) -> Any:
    """Return the type of a key. names: the parts of the key."""
    hint = get_type_hints(config)[names[0]]
    return _hint(hint, names[1:]) if names[1:] else hint


def _dataclasses(hint: Any) -> list[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [member for argument in get_args(hint) for member in _dataclasses(argument)]


def _type(hint: Any) -> str:
    """Name a type as a user writes its values."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        members = [_type(member) for member in arguments if member is not NoneType]
        null = ["null"] if NoneType in arguments else []
        return " or ".join([*dict.fromkeys(members), *null])
    if get_origin(hint) is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if get_origin(hint) in (list, tuple):
        return f"list of {_type(arguments[0])}"
    if get_origin(hint) is dict or (isinstance(hint, type) and is_dataclass(hint)):
        return "mapping"
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}.get(
        getattr(hint, "__name__", ""), "any"
    )


def _default(field: Field[Any], value: Any, tabulated: bool) -> str:
    """Show a default: of configs/ if it is there, else of the dataclass.

    tabulated: whether the value's own keys have a table.
    """
    if value is MISSING and field.default is not MISSING:
        value = field.default
    factory: Any = field.default_factory
    if value is MISSING and factory is not MISSING:
        value = factory()
    if value is MISSING:
        return ""
    if is_dataclass(value) or (tabulated and value and isinstance(value, dict)):
        return "below"
    if value and isinstance(value, list) and isinstance(value[0], dict):
        return f"{len(value)} of them"
    return _value(
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value).replace("'", "")
    )


def _value(text: str) -> str:
    return f"`{text}`" if text not in ("", '""', "''") else "empty"


def _sentence(text: str) -> str:
    return text.strip().rstrip(".;")
