"""The card of a hub's data set (its README.md): licence, citation, and the files of each configuration."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipeline.corpus.yaml_text import load_yaml

CARD = "README.md"
_READ_CHARS = 256 << 10  # characters of a card that are read
_BIBTEX = re.compile(r"@\w+\s*\{")
_NOTHING = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, kw_only=True)
class Card:
    """The content of a card.

    configs: patterns of files by configuration and split; the split is `*` if the card does not name it.
    """

    licence: str = ""
    citation: str = ""
    configs: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def read_card(directory: Path) -> Card:
    """Read the card in a copy of a data set. It is empty if there is no card.

    Raises ValueError if the header is no YAML, or is longer than the characters that are read.
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
    """Return the lines between two lines of three hyphens at the start of a text; empty without them."""
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
    """Return the BibTeX entries, each from its first line to a line with a closing brace alone."""
    entries: list[str] = []
    lines: list[str] = []
    for line in text.split("\n"):
        if lines or _BIBTEX.match(line):
            lines.append(line)
            if line.strip() == "}":
                entries.append("\n".join(lines).strip())
                lines = []
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
    """Return patterns by split, from any form in which a card may list data files."""
    if isinstance(files, dict):
        files = [{"split": split, "path": paths} for split, paths in files.items()]
    patterns: dict[str, list[str]] = {}
    for file in files if isinstance(files, list) else [files]:
        split, paths = (_text(file.get("split")) or "*", file.get("path")) if isinstance(file, dict) else ("*", file)
        patterns.setdefault(split, []).extend(_texts(paths))
    return {split: tuple(names) for split, names in patterns.items()}


def _texts(value: Any) -> list[str]:
    """Return one text, or the texts of a list; other values are ignored."""
    return [text for item in (value if isinstance(value, list) else [value]) if (text := _text(item))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value not in _NOTHING else ""
