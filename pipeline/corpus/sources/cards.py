"""The card of a hub data set (its README.md): licence, citation, and which files a configuration has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipeline.corpus.yaml_text import load_yaml

CARD = "README.md"
_READ_CHARS = 256 << 10  # of a card; what comes after them is not read
_BIBTEX = re.compile(r"@\w+\s*\{")
_NOTHING = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card says. configs: name -> split -> patterns of files; the split is `*` where the card leaves it open."""

    licence: str = ""
    citation: str = ""
    configs: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def read_card(directory: Path) -> Card:
    """Card in a copy of a data set, empty where there is none; of a long one its beginning.

    Raises ValueError if its header is no YAML, or does not end in what is read.
    """
    path = directory / CARD
    if not path.is_file():
        return Card()
    with path.open(encoding="utf-8", errors="replace") as file:
        text = file.read(_READ_CHARS)
    try:
        header = load_yaml(_header(text), yaml.BaseLoader)
    except ValueError as error:
        raise ValueError(f"{path}: its header is no YAML ({error}); correct it, or take it out") from error
    if not isinstance(header, dict):
        header = {}
    return Card(licence=_licence(header), citation="\n\n".join(_entries(text)), configs=_configs(header.get("configs")))


def _header(text: str) -> str:
    """Cut out the lines between the first line and the next one, both of three hyphens; empty without such lines."""
    first, *lines = text.removeprefix("\ufeff").split("\n")
    if first.rstrip() != "---":
        return ""
    for number, line in enumerate(lines):
        if line.rstrip() == "---":
            return "\n".join(lines[:number])
    if len(text) == _READ_CHARS:
        raise ValueError(f"it does not end in the first {_READ_CHARS} characters")
    return ""


def _entries(text: str) -> list[str]:
    """BibTeX entries: from a line that opens one to the first line that is a closing brace alone."""
    entries: list[str] = []
    opened: list[str] = []
    for line in text.split("\n"):
        if opened or _BIBTEX.match(line):
            opened.append(line)
            if line.strip() == "}":
                entries.append("\n".join(opened).strip())
                opened = []
    return entries


def _licence(header: Mapping[str, Any]) -> str:
    listed = ", ".join(_texts(header.get("license")))
    details = [text for key in ("license_name", "license_link") for text in _texts(header.get(key))]
    return f"{listed} ({', '.join(details)})" if details else listed


def _configs(items: Any) -> dict[str, dict[str, tuple[str, ...]]]:
    configs: dict[str, dict[str, tuple[str, ...]]] = {}
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            files = item.get("data_files") or f"{_text(item.get('data_dir'))}/*".lstrip("/")
            configs[_text(item.get("config_name")) or "default"] = _patterns(files)
    return configs


def _patterns(files: Any) -> dict[str, tuple[str, ...]]:
    """Patterns by split, of any of the ways in which a card may list data files."""
    if isinstance(files, dict):
        files = [{"split": split, "path": paths} for split, paths in files.items()]
    patterns: dict[str, list[str]] = {}
    for file in files if isinstance(files, list) else [files]:
        split, paths = (_text(file.get("split")) or "*", file.get("path")) if isinstance(file, dict) else ("*", file)
        patterns.setdefault(split, []).extend(_texts(paths))
    return {split: tuple(names) for split, names in patterns.items()}


def _texts(value: Any) -> list[str]:
    """A text, or the texts of a list; nothing else is taken."""
    return [text for item in (value if isinstance(value, list) else [value]) if (text := _text(item))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value not in _NOTHING else ""
