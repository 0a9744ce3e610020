"""The configuration of `make plan`: its own settings, the device and the recipes. This module does not load torch."""

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
from pipeline.schema import build
from pipeline.spelling import suggestion

PAPER = "paper"
DEFAULT_DEVICE, PAPER_DEVICE = "h100", "tpu_v3"
# Keys of `make train` that have another name here
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
    """The settings of configs/plan.yaml, and those that the command line adds.

    recipes: names of the recipes in recipes/.
    what: the recipes as the user wrote them.
    devices: number of devices, 0 for the number in the recipe's paper.
    device_name, device_keys: the user's words about the device.
    ep, mp: processes that share the experts, and that share a model. None lets the plan choose.
    overrides: the user's words about the recipes.
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
            settings = {"ep": self.ep or 0, "mp": self.mp or 0, "zero_stage": self.zero_stage - 1}
            settings["recompute"] = int(self.recompute != "none")
            if name := next((name for name, value in settings.items() if value), ""):
                raise ValueError(f"{name}={getattr(self, name)} is what search=true chooses; leave out one of them")
        if self.out and Path(self.out).suffix not in (".png", ".svg"):
            raise ValueError(f"out={self.out} must end in .png or .svg")

    @property
    def layout(self) -> str:
        """The layout that the user names, the default if the user sets letters of it, or an empty string."""
        names = [word.partition("=")[2] for word in self.overrides if _key(word) == "layout"]
        sets_letters = any(_key(word).startswith("layout.") for word in self.overrides)
        return _plain(names[-1]) if names else DEFAULT if sets_letters else ""


def load_plan(overrides: Sequence[str]) -> PlanConfig:
    """Build the configuration from the words of the command line. Raises ValueError with a remedy."""
    own = {field.name for field in fields(PlanConfig)} - {
        "recipes",
        "what",
        "device",
        "device_name",
        "device_keys",
        "overrides",
    }
    settings, device_words, recipe_words = list[str](), list[str](), list[str]()
    what = "demo"
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals and not key.startswith("~"):
            recipe = (ROOT / "recipes" / word).is_dir() or (ROOT / "recipes" / f"{word}.yaml").is_file()
            hint = f"; did you mean RECIPE={word.rstrip('/')}?" if recipe else ", as in devices=8"
            raise ValueError(f"{word} is no key=value{hint}")
        name = _OF_TRAIN.get(_key(word), _key(word))
        if name == "recipes":
            what = value
        elif name.split(".")[0] == "device":
            device_words.append(word)
        elif name.split(".")[0] in own:
            settings.append(word.replace(key, name, 1))
        elif "." in key or "/" in key or name in _OF_RUN or (ROOT / "configs" / name).is_dir():
            recipe_words.append(word)
        else:
            names = sorted({*own, "recipes", "device", *_OF_RUN} - {"recipe"})
            raise ValueError(f"key {name} does not exist{suggestion(name, names)}")
    tree = compose_tree("plan", settings)
    if tree["devices"] == PAPER:
        tree["devices"] = 0
    elif tree["devices"] == 0:
        raise ValueError(f"devices=0 must be at least 1, or {PAPER}")
    names = [_plain(word.partition("=")[2]) for word in device_words if _key(word) == "device"]
    name = names[-1] if names else DEFAULT_DEVICE if tree["devices"] else PAPER_DEVICE
    keys = [word for word in device_words if _key(word) != "device"]
    device = {"device": _device(name, keys), "device_name": name, "device_keys": keys}
    recipes = {"what": _plain(what), "recipes": _recipes(what), "overrides": recipe_words}
    return build(PlanConfig, {**tree, **device, **recipes})


def published(recipe: str) -> dict[str, float]:
    """Return the figures that the paper gives for a recipe, from the expected.csv in the recipe's folder.

    The names are parameters, steps_per_second, core_years, days and cores. Unknown figures are left out.
    """
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
    """Return the names of the recipes. A folder stands for all recipes in it, in the order of its expected.csv."""
    recipes: list[str] = []
    for name in filter(None, (part.strip() for part in _plain(what).split(","))):
        folder = ROOT / "recipes" / name
        if folder.with_name(f"{folder.name}.yaml").is_file():
            recipes.append(name)
            continue
        if not folder.is_dir():
            paths = [path for path in (ROOT / "recipes").rglob("*") if path.is_dir() or path.suffix == ".yaml"]
            existing = sorted(str(path.relative_to(ROOT / "recipes").with_suffix("")) for path in paths)
            raise ValueError(f"recipe {name} does not exist{suggestion(name, existing)}")
        order = list(_expected(folder))
        names = sorted(file.stem for file in folder.glob("*.yaml"))
        names.sort(key=lambda stem: order.index(stem) if stem in order else len(order))
        recipes += [f"{name.strip('/')}/{stem}" for stem in names]
    if not recipes:
        raise ValueError(f"recipes={what} names no recipe; give one, several, or a folder of recipes/")
    return list(dict.fromkeys(recipes))


def _device(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the values of a device, with those that the user's words set."""
    values = asdict(load_device(name))
    for word in words:
        _put(values, _key(word).split(".")[1:], _plain(word.partition("=")[2]))
    return values


def _put(values: dict[str, Any], path: Sequence[str], text: str) -> None:
    """Set a value to a number, or to a word if it is one now. A path such as `flops.bf16` leads into a mapping."""
    key, (name, *inner) = ".".join(("device", *path)), path
    if name not in values or isinstance(values[name], dict) != bool(inner) or inner[1:]:
        existing = [f"device.{field}" for field, value in values.items() if not isinstance(value, dict)]
        mappings = {field: value for field, value in values.items() if isinstance(value, dict)}
        existing += [f"device.{field}.{part}" for field, mapping in mappings.items() for part in mapping]
        raise ValueError(f"{key} does not exist{suggestion(key, existing)}")
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
    """Return the text without quotes and without the brackets of a list."""
    return text.strip().strip("'\"[]")
