"""Results of one configuration are replaced by those of another one only where the user says so, by REPLACE=1."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from eval.records.decisive import decisive
from eval.report.page_record import has_foreign_page
from pipeline.config import PLACE, ROOT, RunConfig
from pipeline.earlier_runs import RECORD, imported_from

SWEEP = "sweep.json"
ON_DATA = ("pairs", "corpus", "vocab")  # the parts of the configuration that `make data` shows
_SHOWN, _LONGEST = 3, 60  # differences in a message, and characters of each value

Difference = tuple[str, Any, Any]  # key, value of the earlier run, value of this one


def check_replacement(directory: Path, config: RunConfig, parts: Sequence[str] = ()) -> None:
    """Raise ValueError where the directory has results of another configuration that may not be replaced.

    parts: the only parts of the configuration that matter; all of them by default.
    """
    if (directory / SWEEP).exists():
        raise ValueError(f"{directory} is a sweep, no run; give the run another name, as NAME=other")
    if config.runtime.replace:
        return
    if has_foreign_page(directory):
        raise ValueError(
            f"{directory} has a page of other runs, which make report drew; choose another name, as "
            f"NAME={config.name}-2, or replace that page by REPLACE=1"
        )
    if imported_from(directory) is not None:
        raise ValueError(
            f"NAME={config.name}: {directory} holds an imported model; choose another name, as NAME={config.name}-2, "
            "or replace that run by REPLACE=1"
        )
    different = [d for d in differences(directory, config) if not parts or d[0].split(".")[0] in parts]
    if different:
        listing = ", ".join(f"{key}={_short(old)} there and {_short(new)} here" for key, old, new in different[:_SHOWN])
        more = f", and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
        raise ValueError(
            f"{directory} has results of another configuration: {listing}{more}; choose another name, as "
            f"NAME={config.name}-2, or replace those results by REPLACE=1"
        )


def differences(directory: Path, config: RunConfig) -> list[Difference]:
    """Return how a configuration differs from that of the finished run in a directory, as far as it decides results.

    It is empty without a finished run there.
    """
    path = directory / RECORD
    if not path.exists():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    if imported_from(directory) is not None:  # its configuration is not one of a training
        return [("recipe", record["recipe"], config.recipe)]
    here = json.loads(json.dumps(asdict(config)))
    there = record["config"]
    if isinstance(there["baselines"], list):  # as version 0.2.0 wrote the tiers
        there = {**there, "baselines": {"tiers": there["baselines"]}}
    earlier, current = _decisive(there), _decisive(here)
    if current["pairs"] == record.get("pairs"):  # as the corpus names what the user wrote
        earlier["pairs"] = current["pairs"]
    return list(_compare(earlier, current, "", config))


def _decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide results, except where a run executes. Paths and pairs have one spelling."""
    kept = {key: value for key, value in decisive(dict(config)).items() if key not in PLACE}
    kept["corpus"]["path"] = str((ROOT / Path(kept["corpus"]["path"]).expanduser()).resolve())
    kept["pairs"] = [pair.replace(":", "-") for pair in kept["pairs"]]
    return kept


def _compare(old: Any, new: Any, key: str, part: Any) -> Iterator[Difference]:
    """Yield the differing values of two JSON trees.

    A setting that the earlier version did not have counts as it is by default, and is not compared without a default.
    Neither is one that this version does not have.
    part: the part of the configuration that `new` was made of.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in {**new, **(old if isinstance(part, dict) else {})}:
            if name not in old and is_dataclass(part) and new[name] == _default(part, name, new[name]):
                continue
            child = part.get(name) if isinstance(part, dict) else getattr(part, name)
            yield from _compare(old.get(name), new.get(name), f"{key}.{name}" if key else name, child)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and any(map(is_dataclass, part)):
        for number, (earlier, current) in enumerate(zip(old, new, strict=True)):
            yield from _compare(earlier, current, f"{key}[{number}]", part[number])
    elif old != new and not (_is_off(old) and _is_off(new)):
        yield key, old, new


def _is_off(value: Any) -> bool:
    """Return whether a value is empty, however its version writes that."""
    return all(map(_is_off, value.values())) if isinstance(value, Mapping) else value in (None, [])


def _default(part: Any, name: str, otherwise: Any) -> Any:
    """Return the default of a field as JSON, or `otherwise` without one."""
    field = next(field for field in fields(part) if field.name == name)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    if default is MISSING:
        return otherwise
    return asdict(default) if is_dataclass(default) and not isinstance(default, type) else default


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
