"""The groups that a command line chooses, as `gate=top1`: their files win over what a recipe says of the same settings.

Hydra merges a recipe over all groups, whoever chose them. So the values of a chosen file are merged once more, after
the recipe. What the file takes from another one by its defaults list, or leaves empty, stays as the recipe has it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.baseline_config import merge

Values = dict[str, Any]


def chosen_values(overrides: Sequence[str], configs: Path, read: Callable[[Path], Values]) -> Values:
    """Return the values of the files that these overrides choose, from the root of the configuration.

    read: returns the values of a file, with interpolations as they are written.
    configs: the directory of the groups. A choice that does not exist is left to Hydra, which gives the error.
    """
    values: Values = {}
    for file in _files(overrides, configs, read):
        content = {key: value for key, value in read(file).items() if key != "defaults" and value != ""}
        header = re.match(r"#\s*@package\s+(\S+)", file.read_text(encoding="utf-8"))
        for part in reversed((header[1] if header else file.parent.name).split(".")):
            content = {part: content}
        values = merge(values, content)
    return values


def without_stale(tree: Values, chosen: Mapping[str, Any], overrides: Sequence[str]) -> Values:
    """Return the configuration without a recipe's settings of a gate, say, that the chosen one does not have.

    Such a mapping is one of several types, which its `kind` names. What an override sets is kept.
    """
    keys = {override.lstrip("+~").partition("=")[0] for override in overrides}

    def walk(node: Values, of_file: Mapping[str, Any], path: str) -> Values:
        any_key = "kind" not in of_file
        kept = {key: value for key, value in node.items() if any_key or key in of_file or path + key in keys}
        for key, value in of_file.items():
            if isinstance(value, Mapping) and isinstance(kept.get(key), dict):
                kept[key] = walk(kept[key], value, f"{path}{key}.")
        return kept

    return walk(tree, chosen, "")


def _files(overrides: Sequence[str], configs: Path, read: Callable[[Path], Values]) -> list[Path]:
    """Return the files that overrides choose, in the order of groups in which Hydra merges them.

    Of several overrides of one group the last counts.
    """
    defaults = read(configs / "config.yaml")["defaults"]
    files: dict[str, list[Path]] = {group: [] for entry in defaults if isinstance(entry, dict) for group in entry}
    for override in overrides:
        group, _, value = override.lstrip("+").partition("=")
        names = re.findall(r"[^\[\],\s'\"]+", value)  # one name, or a list of them
        if "/" not in group:
            files[group] = [file for file in sorted((configs / group).glob("*.yaml")) if group and file.stem in names]
    return [file for group_files in files.values() for file in group_files]
