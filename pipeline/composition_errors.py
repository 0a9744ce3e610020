"""Faults of a command line or of a recipe, in the words of their author in place of Hydra's."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.recipe_errors import RECIPES, Composer, fault_of_file, no_option
from pipeline.spelling import key_suggestion

_DEFAULT = "demo"  # the recipe of configs/config.yaml
RUNS = ("config", "sweep", "plan")  # files of configs/ whose commands begin a run; the others use one
_PAIR = re.compile(r"[a-z]{2,3}(-\w+)?[-:][a-z]{2,3}(-\w+)?,?")
_LISTS = ("regularizer",)  # groups of which several options may be chosen
_BRACKETS = {"]": "[", "}": "{", ")": "("}


@dataclass(frozen=True, kw_only=True)
class _Word:
    """A word of the command line. sign: `+`, `++`, `~` or none."""

    text: str
    sign: str
    key: str
    equals: str
    value: str

    @classmethod
    def of(cls, text: str) -> "_Word":
        key, equals, value = text.partition("=")
        sign = key[: len(key) - len(key.lstrip("+~"))]
        return cls(text=text, sign=sign, key=key.removeprefix(sign), equals=equals, value=value)


def check_single_choices(overrides: Sequence[str], root: Path) -> None:
    """Raise ValueError for a word that chooses several options of a group that has one, as gate=[top1,top2]."""
    for word in map(_Word.of, overrides):
        if word.value.startswith("[") and "," in word.value.strip("[], ") and _has_one_choice(word.key, root):
            raise ValueError(_several_choices(word))


def _has_one_choice(group: str, root: Path) -> bool:
    return group == RECIPES or (bool(group) and group not in _LISTS and (root / "configs" / group).is_dir())


def _several_choices(word: _Word) -> str:
    first = re.split(r"[\[(]", word.value)[-1].partition(",")[0].strip()
    return (
        f"{word.text} names several options of {word.key}, of which a run has one; write {word.key}={first}, and to "
        "train a run for each of them use `make sweep` (docs/sweeps.md)"
    )


def explain(error: Exception, overrides: Sequence[str], composer: Composer) -> str:
    """Return what is wrong, with a remedy, where the composition of `overrides` raised `error`.

    Words are examined before files, and a key after the groups that decide which keys exist.
    """
    words = [_Word.of(override) for override in overrides]
    for word in words:
        if fault := _unreadable(word, words, composer) or _wrong_choice(word, composer):
            return fault
    recipe = next((word.value for word in reversed(words) if word.key == RECIPES), _DEFAULT).removesuffix(".yaml")
    try:
        keys = _leaves(composer.compose([word.text for word in words if _chooses(word, word.key, composer)]))
    except composer.faults as fault_of_choices:
        return fault_of_file(fault_of_choices, f"{RECIPES}/{recipe}.yaml", composer)
    for word in words:
        if not _chooses(word, word.key, composer) and (fault := _wrong_key(word, keys, composer)):
            return fault
    return _fault_of_value(error, words, keys, recipe)


def _unreadable(word: _Word, words: Sequence[_Word], composer: Composer) -> str:
    """Return what is wrong with the form of a word, an empty text if Hydra reads it."""
    if not word.equals and word.sign != "~":
        return _no_assignment(word.text, words, composer)
    plain = f"{word.key.strip()}={word.value.strip().lstrip('=').strip()}"
    if word.key != word.key.strip() or word.value.startswith("="):
        return f"{word.text} is not of the form key=value; write {plain}"
    if not word.key:
        return f"{word.text} has no key before the equals sign; write it as key=value"
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    try:
        sweeps = parser.parse_override(word.text).is_sweep_override()
    except HydraException:
        return _wrong_value(word)
    if sweeps and _has_one_choice(word.key, composer.root):
        return _several_choices(word)
    if sweeps:
        listed = word.value.split("(")[-1].rstrip(")")
        return (
            f"{word.text} gives several values; for a list write '{word.key}=[{listed}]', and to train a run for each "
            "value use `make sweep` (docs/sweeps.md)"
        )
    return ""


def _no_assignment(text: str, words: Sequence[_Word], composer: Composer) -> str:
    if text.startswith("-"):
        return f"{text} is no key=value; `python -m pipeline help` lists what there is"
    if _PAIR.fullmatch(text):
        pairs = [word.value for word in words if word.key == "pairs"][-1:]
        listed = ",".join(part.strip("[], ") for part in [*pairs, text])
        return f'{text} is no key=value; write all pairs as one word, LANG_PAIRS="{listed.replace(",", " ")}"'
    key, colon, value = text.partition(":")
    if colon and re.fullmatch(r"[\w./]+", key):
        return f"{text} is no key=value; write {key}={value.strip()}"
    groups = sorted(path.name for path in (composer.root / "configs").iterdir() if path.is_dir())
    chosen = [f"{group}={text}" for group in (RECIPES, *groups) if text in composer.options(group)]
    if chosen:
        return f"{text} is no key=value; did you mean {' or '.join(chosen)}?"
    if composer.primary not in RUNS:
        return f"{text} is no key=value; name a run as NAME={text}"
    return f"{text} is no key=value, as in model.dim=256; `python -m pipeline help` lists what there is"


def _wrong_value(word: _Word) -> str:
    """Return what is wrong with a value that Hydra cannot read, and how to write it."""
    if not re.fullmatch(r"[\w@/-]+(\.[\w-]+)*", word.key, re.ASCII):
        return f"{word.text}: {word.key} is not the name of a key, which has letters, digits, _ and dots between them"
    quoted = shlex.quote(f'{word.sign}{word.key}="{word.value.replace(chr(34), chr(92) + chr(34))}"')
    opened: list[str] = []
    for char in re.sub(r"\"[^\"]*\"|'[^']*'", "", word.value):
        if char in _BRACKETS.values():
            opened.append(char)
        elif char in _BRACKETS and (not opened or opened.pop() != _BRACKETS[char]):
            return f"{word.text} has a {char} without its {_BRACKETS[char]}; remove it"
    if opened:
        return (
            f"{word.text} has a {opened[-1]} that is not closed; close it, and quote the whole word if it has spaces, "
            f"as '{word.key}=…'"
        )
    if re.search(r"[\[{,]\s*,|,\s*[\]}]", word.value):
        return f"{word.text} has a comma without a value beside it; remove the comma"
    if re.search(r"(?<!\$)\{[^{}:]*=", word.value):
        return f"{word.text} cannot be read; a mapping has colons, as '{word.key}={{name: value}}'"
    if word.key == "pairs":
        return f"{word.text} cannot be read; write pairs as de-en, with spaces or commas between them"
    return f"{word.text} cannot be read; put the value in quotes, as {quoted}"


def _chooses(word: _Word, group: str, composer: Composer) -> bool:
    """Return whether a word chooses an option of a group. A mapping sets keys of the group's section."""
    return composer.is_group(group) and not word.value.startswith("{")


def _wrong_choice(word: _Word, composer: Composer) -> str:
    """Return what is wrong with a word that chooses an option of a group, such as gate=top1."""
    group, at, _ = word.key.partition("@")
    if not _chooses(word, group, composer) or word.sign == "~":
        return ""
    listed = word.value.startswith("[")
    names = [name.strip(" \"'").removesuffix(".yaml") for name in word.value.strip("[]").split(",")]
    options = composer.options(group)
    noun = "recipe" if group == RECIPES else group
    if at or word.sign:
        return f"{word.text}: {noun} is chosen without {'a package' if at else word.sign}; write {group}={word.value}"
    for name in names if listed else names[:1]:
        if not name and listed:
            continue
        if name not in options and not _is_stored(group, name):
            return no_option(noun, name, options)
    return ""


def _is_stored(group: str, name: str) -> bool:
    """Return whether the program itself has an option of this name, which is no file."""
    from hydra.core.config_store import ConfigStore

    stored = ConfigStore.instance().repo.get(group, {})
    return f"{name}.yaml" in stored


def _wrong_key(word: _Word, keys: Sequence[str], composer: Composer) -> str:
    """Return what is wrong with the key of an override. keys: those that exist, dotted."""
    mapping = word.value.startswith(("{", "["))
    if word.key in keys or any(key.startswith(f"{word.key}.") for key in keys):
        if word.sign == "+" and not mapping:
            return f"{word.text}: {word.key} exists already; write it without the plus, {word.key}={word.value}"
        if word.sign == "~" and word.value:
            return f"{word.text}: a key is removed by its name alone, ~{word.key}"
        return "" if word.sign or word.key in keys else _wrong_part(word, keys, composer)
    if word.sign.startswith("+") or word.key.startswith("hydra"):
        return ""
    if not word.sign and any(f"{word.key}.".startswith(f"{name}.") for name in composer.open_mappings):
        return f"{word.key} names something new; add it with a plus: +{word.text}"
    if above := next((key for key in keys if word.key.startswith(f"{key}.")), ""):
        part = word.key.removeprefix(f"{above}.")
        return f"{above} has no parts here; write {above}={{{part}: {word.value}}}"
    return _unknown(word.key, keys, composer)


def _wrong_part(word: _Word, keys: Sequence[str], composer: Composer) -> str:
    parts = [key.removeprefix(f"{word.key}.") for key in keys if key.startswith(f"{word.key}.")]
    wrong = [name for name in re.findall(r"[{,]\s*(\w+)\s*:", word.value) if name not in parts]
    wrong = [name for name in wrong if not any(part.startswith(f"{name}.") for part in parts)]
    return _unknown(f"{word.key}.{wrong[0]}", keys, composer) if wrong else ""


def _unknown(key: str, keys: Sequence[str], composer: Composer) -> str:
    sections = dict.fromkeys(name.partition(".")[0] for name in keys)
    listing = "`make config` prints those that there are" if composer.of_run else f"there are {', '.join(sections)}"
    return f"configuration key {key} does not exist{key_suggestion(key, keys) or f'; {listing}'}"


def _fault_of_value(error: Exception, words: Sequence[_Word], keys: Sequence[str], recipe: str) -> str:
    """Return what is wrong with a reference, as ${model.dim}, or with a value that no other check finds."""
    place = getattr(error, "full_key", None) or getattr(error.__cause__, "full_key", None) or ""
    word = next((word for word in reversed(words) if word.key == place), None)
    word = word or next((word for word in words if "$" in word.value), None)
    if place == "name" and "'recipe'" in str(error) and word is None:
        return (
            f"recipes/{recipe}.yaml: recipe is not set; a recipe begins with the line `# @package _global_`, and names "
            f"itself, as in `recipe: {recipe.replace('/', '_')}`"
        )
    word = word or next((word for word in words if word.key.startswith("hydra")), None)
    where = word.text if word else place or "the configuration"
    kind = type(error).__name__
    name = next(iter(re.findall(r"(?:key|type|variable) '?([^'\s]+)'?", str(error).splitlines()[0])), "")
    if kind == "InterpolationKeyError":
        return f"{where}: there is no key {name}{key_suggestion(name, keys)}"
    if kind == "UnsupportedInterpolationType":
        return f"{where}: ${{{name}:…}} is no function of the configuration; use share or oc.env, or write the value"
    if kind in ("MissingMandatoryValue", "InterpolationToMissingValueError"):
        return f"{place} is not set; give it a value, as {place}=…"
    if "Recursive" in str(error):
        return f"{where}: {place} refers to itself; write its value"
    if "Environment variable" in str(error):
        return f"{where}: the environment has no variable {name}; set it, or write the value"
    if "$" in where or "Grammar" in kind:
        return f"{where} has a reference ${{…}} that cannot be read; close its brace, or quote the value in '…'"
    return f"{where} does not fit the configuration; `make config` without it prints the keys and their values"


def _leaves(tree: Any, path: str = "") -> list[str]:
    """Return the dotted keys of all values."""
    if not isinstance(tree, Mapping):
        return [path]
    return [key for name, value in tree.items() for key in _leaves(value, f"{path}.{name}" if path else str(name))]
