"""The options of configuration groups, and faults of the recipes that choose them, in place of Hydra's messages."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.spelling import did_you_mean, suggestion

Tree = Mapping[str, Any]
RECIPES = "recipes"


@dataclass(frozen=True, kw_only=True)
class Composer:
    """The composition of a configuration, for the search of a fault.

    primary: the file of configs/ that is composed.
    compose: returns the configuration for some overrides, with references unresolved.
    faults: errors that `compose` raises.
    root: directory of configs/ and recipes/.
    open_mappings: keys of mappings whose parts the user names.
    """

    primary: str
    compose: Callable[[Sequence[str]], Tree]
    faults: tuple[type[Exception], ...]
    root: Path
    open_mappings: Sequence[str]

    @property
    def of_run(self) -> bool:
        """True if `make config` prints this configuration."""
        return self.primary == "config"

    def is_group(self, key: str) -> bool:
        return key == RECIPES or (bool(key) and (self.root / "configs" / key).is_dir())

    def options(self, group: str) -> list[str]:
        """Return the names that a group has."""
        directory = self.root / RECIPES if group == RECIPES else self.root / "configs" / group
        files = (file.relative_to(directory) for file in directory.rglob("*.yaml") if file.is_file())
        return sorted(file.with_suffix("").as_posix() for file in files)


def fault_of_file(error: Exception, file: str, composer: Composer) -> str:
    """Return what is wrong with a recipe, or with a file of configs/ that an override chooses.

    file: path of the recipe, for messages.
    """
    mark = getattr(error, "problem_mark", None)
    if mark is not None:  # an error of YAML
        fault = _yaml_fault(str(getattr(error, "problem", None) or "it is no YAML"))
        return f"{_shown(mark.name, composer.root)}: line {mark.line + 1}, column {mark.column + 1}: {fault}"
    text = f"{error} {error.__cause__}"
    if isinstance(error, UnicodeDecodeError):
        return f"{file}: byte {error.start} is not UTF-8; convert the file to UTF-8"
    if isinstance(error, RecursionError):
        return f"{file}: its defaults lead back to itself; remove the recipe that they name"
    if missing := re.search(r"Could not (?:find|load) '([\w/]+?)/([^/']*)'", text):
        inside = re.search(r"In '([^']+)'", text)
        file = f"{inside[1]}.yaml" if inside and inside[1].startswith(f"{RECIPES}/") else file
        return f"{file}: {_missing_default(missing[1], missing[2], composer)}"
    if again := re.search(r"To override a value use 'override ([\w/]+): ?(.*?)'", text):
        return f"{file}: its defaults choose {again[1]}, which has a default; write `override /{again[1]}: {again[2]}`"
    if "efaults list" in text or "defaults must be" in text:
        return f"{file}: defaults must be a list, as in `defaults: [/recipes/smoke, _self_]`"
    if "ListConfig" in text or "must be an OmegaConf config" in text:
        return f"{file}: must be a mapping, of lines such as `pairs: [de-en]`"
    if "Grammar" in f"{type(error)} {type(error.__cause__)}":
        return f"{file}: a reference ${{…}} cannot be read; close its brace, or put the value in quotes"
    return f"{file} does not fit configs/config.yaml; compare its keys and defaults with those of recipes/smoke.yaml"


def _missing_default(group: str, name: str, composer: Composer) -> str:
    if not group.startswith(RECIPES):
        return no_option(group, name, composer.options(group))
    inner = f"{group}/{name}".removeprefix(f"{RECIPES}/")
    first = inner.split("/")[0]
    if composer.is_group(first) and not (composer.root / RECIPES / first).is_dir():
        return f"its defaults name {inner}; a group begins with a slash, as in `override /{first}: {name}`"
    return f"its defaults name {inner}: {no_option('recipe', inner, composer.options(RECIPES))}"


def _yaml_fault(problem: str) -> str:
    """Return the fault that PyYAML calls `problem`, with a remedy."""
    if r"'\t'" in problem:
        return "a tab indents the line; use spaces"
    if "mapping values are not allowed" in problem:
        return "a second colon in one line; put a nested key on its own line, or the value in quotes"
    if duplicate := re.search(r"duplicate key (.+)", problem):
        return f"{duplicate[1]} is there twice; merge the two"
    if "undefined alias" in problem:
        return "a value begins with *, which YAML reads as a reference; put it in quotes"
    if "constructor for the tag" in problem:
        return "a value begins with !, which YAML reads as a tag; put it in quotes"
    if "expected ',' or" in problem or "end of stream" in problem:
        return "a bracket or a quote is not closed"
    return f"{problem}; put the value in quotes, or correct the indentation"


def no_option(noun: str, name: str, options: Sequence[str]) -> str:
    if noun != "recipe":
        return f"{noun} {name or repr(name)} does not exist{suggestion(name, options)}"
    name = name.removeprefix("recipes/").rstrip("/")
    inside = [option for option in options if option.startswith(f"{name}/")]
    if inside:
        return f"recipe {name} is a folder; name one recipe of it: {', '.join(inside)}"
    if name in options:
        return f"recipe recipes/{name} does not exist; write {name}, its name below recipes/"
    places = dict.fromkeys(re.sub("/.*", "/", option) for option in options)  # folders once
    return f"recipe {name or repr(name)} does not exist{did_you_mean(name, options) or suggestion(name, places)}"


def _shown(path: str, root: Path) -> str:
    return Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path
