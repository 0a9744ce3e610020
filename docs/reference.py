"""Write the generated parts of the reference: `python -m docs.reference`.

A generated part is a block `<!-- reference: NAME -->` … `<!-- end -->` in a page of this folder. Types come from the
dataclasses of the configuration, defaults from configs/, and meanings from the line `name: meaning` of a class's
docstring (or the comment after its field). Of commands, the comments in configs/<command>.yaml are the meanings.
"""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pipeline.config import ROOT, RunConfig, compose_tree
from pipeline.decode.config import DecodeConfig
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.plan.workload import Device
from pipeline.verify.config import VerifyConfig

PAGES = ("config-keys.md", "commands.md")
BLOCK = re.compile(r"(<!-- reference: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Commands with settings of their own, by their files configs/<name>.yaml.
COMMANDS = (
    *("sweep", "status", "translate", "serve", "export"),
    *("pruning", "distillation", "backtranslation", "plan"),
)
_SETTING = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?P<value>[^#]*?)(?: +# (?P<meaning>.*))?$")
_CARRIED = ("defaults", "runtime")  # mappings of configs/<command>.yaml that declare no key of the command


def main() -> None:
    """Write every generated block again."""
    for name in PAGES:
        page = Path(__file__).with_name(name)
        page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")


def rendered(text: str) -> str:
    """Return a page with its generated blocks as they must be now."""
    blocks: dict[str, Callable[[], str]] = {
        "run": lambda: "\n\n".join(_tables(RunConfig, "", compose_tree("config", []), set())),
        "verify": lambda: "\n\n".join(_tables(VerifyConfig, "", {}, set())),
        "device": lambda: "\n\n".join(_tables(Device, "device", {}, set())),
        "commands": command_keys,
        "make": make_help,
    }
    return BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match['name']]()}\n\n{match[3]}", text)


def make_help() -> str:
    """Return what `make help` prints, as a block of code."""
    output = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return f"```text\n{output.stdout.rstrip()}\n```"


def _tables(config: type, path: str, defaults: Any, tabulated: set[type]) -> Iterator[str]:
    """Yield the table of a dataclass, then those of the dataclasses in its fields.

    path: the key of the dataclass, empty for the run.
    defaults: its values in configs/, as far as they are known.
    tabulated: dataclasses that have a table already.
    """
    tabulated.add(config)
    one_of_several = len(get_args(get_type_hints(config).get("kind"))) == 1
    title = f"### `{path}`" if path else "### Keys without a section"
    title += f" of kind `{getattr(config, 'kind', '')}`" if one_of_several else ""
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
        rows.append(f"| `{key}` | {_type(hint)} | {_default(field, value)} | {meaning(config, field.name)} |")
    yield "\n".join([title, "", "| key | type | default | meaning |", "|---|---|---|---|", *rows])
    for member, key, value in parts:
        yield from _tables(member, key, value, tabulated)


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
        return _cell(meanings[name])
    comment = re.search(rf"^    {name}: [^#\n]*# (.*)$", inspect.getsource(config), re.MULTILINE)
    if comment:
        return _cell(comment[1])
    for word in re.findall(r"[A-Z]\w+", inspect.getdoc(config) or ""):
        other = getattr(sys.modules[config.__module__], word, None)
        if not (isinstance(other, type) and is_dataclass(other)) or other is config:
            continue
        if name in {field.name for field in fields(other)}:
            return meaning(other, name)
    members = _dataclasses(hint)
    return (_cell(_documented(members[0])[0]) or "settings of their own") if members else ""


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


def command_keys() -> str:
    """Return one table for each command that has settings of its own."""
    return "\n\n".join(
        "\n".join(
            [
                f"### `configs/{command}.yaml`",
                "",
                "| key | default | meaning |",
                "|---|---|---|",
                *(f"| `{key}` | {_value(value)} | {_cell(text)} |" for key, value, text in settings(command)),
            ]
        )
        for command in COMMANDS
    )


def settings(command: str) -> Iterator[tuple[str, str, str]]:
    """Yield key, value and meaning of every setting in configs/<command>.yaml."""
    parents: list[tuple[int, str]] = []
    for line in (ROOT / "configs" / f"{command}.yaml").read_text(encoding="utf-8").splitlines():
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
            yield ".".join(names), match["value"].strip(), text


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
    if get_origin(hint) is list:
        return f"list of {_type(arguments[0])}"
    if get_origin(hint) is dict or (isinstance(hint, type) and is_dataclass(hint)):
        return "mapping"
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}.get(
        getattr(hint, "__name__", ""), "any"
    )


def _default(field: Field[Any], value: Any) -> str:
    """Show a default: of configs/ if it is there, else of the dataclass."""
    if value is MISSING and field.default is not MISSING:
        value = field.default
    if value is MISSING and field.default_factory is not MISSING:
        value = field.default_factory()
    if value is MISSING:
        return ""
    if is_dataclass(value) or (value and isinstance(value, dict)):
        return "below"
    if value and isinstance(value, list) and isinstance(value[0], dict):
        return f"{len(value)} of them"
    return _value(
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value).replace("'", "")
    )


def _value(text: str) -> str:
    return f"`{text}`" if text not in ("", '""', "''") else "empty"


def _cell(text: str) -> str:
    return text.strip().rstrip(".;").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    main()
