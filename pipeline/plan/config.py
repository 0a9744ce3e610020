"""Configuration of `make plan`: its own settings, the device, and what it takes from the recipes. Free of torch."""

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pipeline.config import ROOT, RunConfig, compose_tree
from pipeline.model.config import Recompute
from pipeline.plan.devices import load_device
from pipeline.plan.spread import DEFAULT
from pipeline.plan.workload import Device
from pipeline.schema import build, suggestion

PAPER = "paper"
DEFAULT_DEVICE, PAPER_DEVICE = "h100", "tpu_v3"
# What is a key of `train` there, and one of the plan's own here
_OF_TRAIN = {
    "runtime.processes": "devices",
    "runtime.ep": "ep",
    "runtime.mp": "mp",
    "runtime.zero_stage": "zero_stage",
    "runtime.recompute": "recompute",
}
_OF_RUN = tuple(field.name for field in fields(RunConfig))
_PUBLISHED = ("parameters", "steps_per_second", "core_years", "days", "cores")


@dataclass(frozen=True, kw_only=True)
class PlanConfig:
    """What configs/plan.yaml says, and what the command line adds.

    recipes: their names in recipes/; what: the same as the user wrote it. devices: 0 is as many as in the recipe's
    paper. device_name, device_keys, overrides: the user's own words, of the device and of the recipes. ep, mp: None is
    chosen.
    """

    recipes: list[str]
    what: str
    devices: int
    device: Device
    device_name: str
    device_keys: list[str]
    ep: int | None
    mp: int | None
    zero_stage: Literal[1, 2]
    recompute: Recompute
    search: bool
    top: int
    format: Literal["text", "json"]
    out: str
    overrides: list[str]

    def __post_init__(self) -> None:
        for name in ("ep", "mp", "top"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if self.devices < 0:
            raise ValueError(f"devices={self.devices} must be at least 1, or {PAPER}")
        if self.search and len(self.recipes) > 1:
            raise ValueError(f"search=true is of one recipe, and recipes={self.what} are {len(self.recipes)}")
        if self.search:
            chosen = {"ep": self.ep or 0, "mp": self.mp or 0, "zero_stage": self.zero_stage - 1}
            chosen["recompute"] = int(self.recompute != "none")
            if given := [name for name, value in chosen.items() if value]:
                raise ValueError(
                    f"{given[0]}={getattr(self, given[0])} is what search=true chooses; leave out one of them"
                )
        if self.out and Path(self.out).suffix not in (".png", ".svg"):
            raise ValueError(f"out={self.out} must end in .png or .svg")

    @property
    def layout(self) -> str:
        """The layout of configs/layout that the user names, or whose letters he sets; empty for none."""
        chosen = [word.partition("=")[2] for word in self.overrides if _key(word) == "layout"]
        changed = any(_key(word).startswith("layout.") for word in self.overrides)
        return _plain(chosen[-1]) if chosen else DEFAULT if changed else ""


def load_plan(overrides: Sequence[str]) -> PlanConfig:
    """The configuration of `make plan`. Raises ValueError with what to change."""
    own = {field.name for field in fields(PlanConfig)} - {
        "recipes",
        "what",
        "device",
        "device_name",
        "device_keys",
        "overrides",
    }
    settings, of_device, rest = list[str](), list[str](), list[str]()
    what = "demo"
    for word in overrides:
        key, _, value = word.partition("=")
        name = _OF_TRAIN.get(_key(word), _key(word))
        if name == "recipes":
            what = value
        elif name.split(".")[0] == "device":
            of_device.append(word)
        elif name.split(".")[0] in own:
            settings.append(word.replace(key, name, 1))
        elif "." in key or "/" in key or name in _OF_RUN or (ROOT / "configs" / name).is_dir():
            rest.append(word)
        else:
            known = sorted({*own, "recipes", "device", *_OF_RUN} - {"recipe"})
            raise ValueError(f"key {name} does not exist{suggestion(name, known)}")
    tree = compose_tree("plan", settings)
    if tree["devices"] == PAPER:
        tree["devices"] = 0
    elif tree["devices"] == 0:
        raise ValueError(f"devices=0 must be at least 1, or {PAPER}")
    names = [_plain(word.partition("=")[2]) for word in of_device if _key(word) == "device"]
    name = names[-1] if names else DEFAULT_DEVICE if tree["devices"] else PAPER_DEVICE
    keys = [word for word in of_device if _key(word) != "device"]
    mine = {"device": _device(name, keys), "device_name": name, "device_keys": keys}
    return build(PlanConfig, {**tree, **mine, "what": _plain(what), "recipes": _recipes(what), "overrides": rest})


def published(recipe: str) -> dict[str, float]:
    """What the paper says of a recipe, from the expected.csv beside it: parameters, steps_per_second, core_years, days
    and cores, those of them that are known."""
    row = _expected(ROOT / "recipes" / Path(recipe).parent).get(Path(recipe).name, {})
    return {name: float(value) for name in _PUBLISHED if (value := row.get(f"published_{name}"))}


@cache
def _expected(folder: Path) -> dict[str, dict[str, str]]:
    file = folder / "expected.csv"
    if not file.is_file():
        return {}
    with file.open(encoding="utf-8", newline="") as stream:
        return {row["recipe"]: row for row in csv.DictReader(stream)}


def _recipes(what: str) -> list[str]:
    """Names of recipes, and folders for all in them, in the order of its expected.csv."""
    found: list[str] = []
    for name in filter(None, (part.strip() for part in _plain(what).split(","))):
        folder = ROOT / "recipes" / name
        if folder.with_name(f"{folder.name}.yaml").is_file():
            found.append(name)
            continue
        if not folder.is_dir():
            places = [each for each in (ROOT / "recipes").rglob("*") if each.is_dir() or each.suffix == ".yaml"]
            known = sorted(str(each.relative_to(ROOT / "recipes").with_suffix("")) for each in places)
            raise ValueError(f"recipe {name} does not exist{suggestion(name, known)}")
        order = list(_expected(folder))
        names = sorted(file.stem for file in folder.glob("*.yaml"))
        names.sort(key=lambda stem: order.index(stem) if stem in order else len(order))
        found += [f"{name.strip('/')}/{stem}" for stem in names]
    if not found:
        raise ValueError(f"recipes={what} names no recipe; give one, several, or a folder of recipes/")
    return list(dict.fromkeys(found))


def _device(name: str, words: Sequence[str]) -> dict[str, Any]:
    """configs/device/<name>.yaml or a file of the user's own, with single keys put in place of its values."""
    values = asdict(load_device(name))
    for word in words:
        _put(values, _key(word).split(".")[1:], _plain(word.partition("=")[2]))
    return values


def _put(values: dict[str, Any], path: Sequence[str], text: str) -> None:
    """A number, or a word where one stands now. `flops.bf16` is in a mapping, which may have further names."""
    key, (name, *inner) = ".".join(("device", *path)), path
    if name not in values or isinstance(values[name], dict) != bool(inner) or inner[1:]:
        known = [f"device.{each}" for each in values if not isinstance(values[each], dict)]
        known += [f"device.{each}.{part}" for each in values if isinstance(values[each], dict) for part in values[each]]
        raise ValueError(f"{key} does not exist{suggestion(key, known)}")
    if isinstance(values[name], str):
        values[name] = text
        return
    whole = isinstance(values[name], int)
    try:
        number = int(text) if whole else float(text)
    except ValueError as error:
        raise ValueError(f"{key}={text} must be a {'whole ' if whole else ''}number") from error
    values[name] = {**values[name], inner[0]: number} if inner else number


def _key(word: str) -> str:
    return word.lstrip("+~").partition("=")[0]


def _plain(text: str) -> str:
    """Without quotes and the brackets of a list."""
    return text.strip().strip("'\"[]")
