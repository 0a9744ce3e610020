"""The card of a hub data set (its README.md): licence, citation, and which files a configuration has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CARD = "README.md"
_FRONT = re.compile(r"\A\ufeff?---\s*\n(.*?\n)---\s*(\n|\Z)", re.DOTALL)
_BIBTEX = re.compile(r"^@\w+\s*\{.*?^\s*\}\s*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a card says. configs: name -> split -> patterns of files; the split is `*` where the card leaves it open."""

    licence: str = ""
    citation: str = ""
    configs: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def read_card(directory: Path) -> Card:
    """Card in a copy of a data set, empty where there is none. Raises ValueError if its header is no YAML."""
    path = directory / CARD
    if not path.is_file():
        return Card()
    text = path.read_text(encoding="utf-8", errors="replace")
    front = _FRONT.match(text)
    try:
        header = yaml.safe_load(front[1]) if front else {}
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: its header is no YAML ({error}); correct it, or take it out") from error
    if not isinstance(header, dict):
        header = {}
    return Card(
        licence=_licence(header),
        citation="\n\n".join(entry.strip() for entry in _BIBTEX.findall(text)),
        configs=_configs(header.get("configs")),
    )


def _licence(header: Mapping[str, Any]) -> str:
    names = header.get("license")
    listed = ", ".join(map(str, names)) if isinstance(names, list) else str(names or "")
    details = [str(header[key]) for key in ("license_name", "license_link") if header.get(key)]
    return f"{listed} ({', '.join(details)})" if details else listed


def _configs(items: Any) -> dict[str, dict[str, tuple[str, ...]]]:
    configs: dict[str, dict[str, tuple[str, ...]]] = {}
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            files = item.get("data_files") or f"{item.get('data_dir') or ''}/*".lstrip("/")
            configs[str(item.get("config_name", "default"))] = _patterns(files)
    return configs


def _patterns(files: Any) -> dict[str, tuple[str, ...]]:
    """Patterns by split, of any of the ways in which a card may list data files."""
    if isinstance(files, dict):
        files = [{"split": split, "path": paths} for split, paths in files.items()]
    patterns: dict[str, tuple[str, ...]] = {}
    for file in files if isinstance(files, list) else [files]:
        split, paths = (str(file.get("split", "*")), file.get("path")) if isinstance(file, dict) else ("*", file)
        more = tuple(map(str, paths)) if isinstance(paths, list) else (str(paths),)
        patterns[split] = patterns.get(split, ()) + more
    return patterns
