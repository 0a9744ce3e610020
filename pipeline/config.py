"""The configuration of a run, composed by Hydra and checked into plain dataclasses.

No other file sees a DictConfig.
"""

import contextlib
import io
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.records.scores import METRICS
from pipeline.baseline_config import BaselinesConfig, complete
from pipeline.batch.config import BatchConfig
from pipeline.corpus.config import CorpusConfig, corpus_defaults
from pipeline.decode.config import DecodeConfig
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.parallel.layout import layout_of
from pipeline.parallel.legality import cautions, check_sizes
from pipeline.schema import build
from pipeline.spelling import suggestion
from pipeline.train.config import TrainConfig
from pipeline.vocab.config import VocabConfig

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
OPEN = (
    "batch.mixture.groups",
    "batch.mixture.sources",
    "layout",
)  # mappings whose keys the user chooses
PLACE = ("runtime", "layout")  # parts that decide where a run executes, and do not affect its result
_ANY_CORPUS = "rules"  # the corpus configuration without files


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """The scoring of test sets.

    metrics: names in eval.records.scores.METRICS; `bleu` is needed, because the report is about it.
    resamples: samples of the bootstrap for intervals and significance.
    """

    metrics: list[str]
    resamples: int

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric not in METRICS:
                raise ValueError(f"score.metrics: {metric!r} does not exist{suggestion(metric, METRICS)}")
            if METRICS[metric].sentence_piece:
                from eval.score.metrics import scorer_for  # late, because it loads sacreBLEU

                scorer_for(metric, "en")  # raises before training where its model is missing
        if len(set(self.metrics)) < len(self.metrics) or "bleu" not in self.metrics:
            raise ValueError(f"score.metrics={self.metrics} must name bleu, which the report shows, and nothing twice")
        if self.resamples < 100:
            raise ValueError(f"score.resamples={self.resamples}: an interval needs at least 100; 1000 is usual")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that a run depends on.

    pairs: as the user wrote them; they are parsed when the corpus is read.
    layout: letters of the main model's tensors, and the axes of the mesh that cut them; a bilingual model is not cut.
    name: directory of the results below runs/.
    recipe: name of the complete experiment that the settings come from.
    """

    name: str
    recipe: str
    pairs: list[str]
    corpus: CorpusConfig
    vocab: VocabConfig
    batch: BatchConfig
    model: ModelConfig
    train: TrainConfig
    decode: DecodeConfig
    score: ScoreConfig
    baselines: BaselinesConfig
    runtime: RuntimeConfig
    layout: dict[str, str | list[str] | None]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError('pairs is empty; give language pairs, for example LANG_PAIRS="de-en fr-en"')
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ValueError(f"name={self.name!r} must be a plain directory name")
        check_sizes(layout_of(self.layout, self.runtime), model=self.model, batch=self.batch, vocab=self.vocab)
        ep, num_experts = self.runtime.ep, self.model.moe.num_experts
        if self.runtime.decode_experts == "sharded" and num_experts % ep:  # the layout of training does not matter
            raise ValueError(
                f"model.moe.num_experts={num_experts} is not divisible by runtime.ep={ep}, over which "
                "runtime.decode_experts=sharded cuts them; set another runtime.ep, or runtime.decode_experts=replicated"
            )
        self.model.moe.check_evaluation_capacity(self.decode.capacity_factor)
        rule = self.decode.averaged_rule
        for train in (self.train, *(tier.train for tier in self.baselines.variants())):
            num_kept = getattr(train.checkpoints, rule)
            if self.decode.average > max(num_kept, 1):
                raise ValueError(
                    f"decode.average={self.decode.average} of the {self.decode.average_of} checkpoints needs as many: "
                    f"set train.checkpoints.{rule}={self.decode.average} (it is {num_kept})"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as plain values."""
        return asdict(self)


def load_config(overrides: Sequence[str], root: Path = ROOT) -> RunConfig:
    """Compose `configs/config.yaml`, a recipe and `key=value` overrides. Raises ValueError with what to change.

    `corpus=` may also name a directory, relative to the working directory. Without `pairs=` it means all its pairs.
    """
    overrides, directory = _corpus_directory(overrides, root)
    tree = compose_tree("config", overrides, root)
    if directory is not None:
        tree = _with_directory(tree, directory, overrides)
    config = build(RunConfig, {**tree, "baselines": complete(tree)})
    layout, sizes = layout_of(config.layout, config.runtime), {"target_vocabulary": config.vocab.target_size}
    replicated = cautions(layout, model=config.model, shape=config.batch.shapes[0], **sizes)
    for caution in (*config.model.moe.cautions(), *replicated):
        logger.warning("warning: %s", caution)
    return config


def compose_tree(primary: str, overrides: Sequence[str], root: Path = ROOT) -> dict[str, Any]:
    """Compose `configs/<primary>.yaml` with overrides into plain values. Raises ValueError with what to change."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    OmegaConf.register_new_resolver("share", _share, replace=True)
    ConfigStore.instance().store(group="corpus", name=_ANY_CORPUS, node=corpus_defaults())
    ConfigStore.instance().store(group="decode", name="defaults", node=asdict(DecodeConfig()))
    ConfigStore.instance().store(group="decode", name="unset", node=dict.fromkeys(asdict(DecodeConfig())))
    try:
        with (
            contextlib.redirect_stderr(io.StringIO()),
            initialize_config_dir(str(root / "configs"), version_base="1.3"),
        ):
            composed = compose(primary, overrides=[_recipes(root), *overrides])
        tree = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(_explain(error, primary, overrides, root)) from error
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def _share(share: float, whole: Any) -> Any:
    """Resolve `${share:0.05,${train.max_tokens}}`; a wrong type passes, and is an error of the setting it came from."""
    return round(share * whole) if isinstance(whole, int) else whole


def _corpus_directory(overrides: Sequence[str], root: Path) -> tuple[list[str], Path | None]:
    """Split off a directory that `corpus=` names.

    Returns the overrides with the corpus configuration without files in its place, and the directory if there is one.
    """
    corpora = [override.removeprefix("corpus=") for override in overrides if override.startswith("corpus=")]
    presets = sorted(file.stem for file in (root / "configs" / "corpus").glob("*.yaml") if file.stem != _ANY_CORPUS)
    if not corpora or corpora[-1] in presets:
        return list(overrides), None
    directory = Path(corpora[-1]).expanduser().absolute()
    if not corpora[-1] or not directory.is_dir():
        nearest = suggestion(corpora[-1], presets)
        raise ValueError(f"corpus={corpora[-1]} is neither a directory nor a corpus of configs/corpus{nearest}")
    if any(override.startswith("corpus.path=") for override in overrides):
        raise ValueError(f"corpus={corpora[-1]} is a directory, and corpus.path= names another; give one of them")
    kept = [override for override in overrides if not override.startswith("corpus=")]
    return [f"corpus={_ANY_CORPUS}", *kept], directory


def _with_directory(tree: dict[Any, Any], directory: Path, overrides: Sequence[str]) -> dict[Any, Any]:
    """Return the configuration with the directory as its corpus, all pairs of it, and a name after the directory."""
    keys = {override.partition("=")[0] for override in overrides}
    name = re.sub(r"[^\w.-]+", "-", directory.resolve().name).strip("-") or "corpus"
    tree = {**tree, "corpus": {**tree["corpus"], "path": str(directory)}}
    if "pairs" not in keys:
        tree["pairs"] = ["all"]  # as a user would say it
    if "name" not in keys:
        tree["name"] = f"{tree['recipe']}-{name}"
    return tree


def _recipes(root: Path) -> str:
    """Return the override that lets Hydra find `recipes/`, quoted for any path."""
    escaped = str(root).replace("\\", "\\\\").replace("'", "\\'")
    return f"hydra.searchpath=['file://{escaped}']"


def _explain(error: Exception, primary: str, overrides: Sequence[str], root: Path) -> str:
    """Shorten Hydra's message, and name the nearest key where one is misspelt."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    for override in overrides:
        key = override.lstrip("+~").split("=", 1)[0]
        if "Could not override" in text and f"'{key}'" in text:
            names = _keys(primary, root, overrides)
            if any(f"{key}.".startswith(f"{mapping}.") for mapping in OPEN):
                return f"{key} names something new; add it with a plus: +{override.lstrip('+~')}"
            return _unknown(override, names)
    refused = next((o for o in overrides if o.split("\n")[0] in text), "") if "LexerNoViableAlt" in text else ""
    if refused:
        key, equals, value = refused.partition("=")
        if not equals:
            return f"{refused} is no key=value; `python -m pipeline help` lists what there is"
        return f"{refused} cannot be read; put the value in quotes, as '{key}=\"{value}\"'"
    missing = re.search(r"Could not (?:find|load) '([\w/]+)/([^/']+)'", text)
    if missing:
        group, name = missing.groups()
        recipe = group.startswith("recipes")
        directory = root / "recipes" if recipe else root / "configs" / group
        name = f"{group}/{name}".removeprefix("recipes/") if recipe else name
        names = sorted(str(f.relative_to(directory).with_suffix("")) for f in directory.rglob("*.yaml"))
        return f"{'recipe' if recipe else group} {name} does not exist{suggestion(name, names)}"
    return " ".join(lines[:3])


def _unknown(override: str, names: Sequence[str]) -> str:
    """Return the message for an override whose key does not exist, or is a mapping and has a wrong part.

    names: the keys that exist.
    """
    key, _, value = override.lstrip("+~").partition("=")
    parts = [name.removeprefix(f"{key}.") for name in names if name.startswith(f"{key}.")]
    if parts:
        wrong = [word for word in re.findall(r"[{,]\s*(\w+)\s*:", value) if word not in parts]
        key = f"{key}.{wrong[0]}" if wrong else key
    elif above := next((name for name in names if key.startswith(f"{name}.")), ""):
        return f"{above} has no parts here; write {above}={{{key.removeprefix(f'{above}.')}: {value}}}"
    nearest = suggestion(key, names)
    hint = nearest if "did you mean" in nearest else "; `make config` prints those that there are"
    return f"configuration key {key} does not exist{hint}"


def _keys(primary: str, root: Path, overrides: Sequence[str]) -> list[str]:
    """Return all keys, dotted, of the configuration with the groups that the overrides choose."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    choices = [o for o in overrides if (root / "configs" / o.split("=", 1)[0]).is_dir() or o.startswith("recipes=")]
    with initialize_config_dir(str(root / "configs"), version_base="1.3"):
        tree = OmegaConf.to_container(compose(primary, overrides=[_recipes(root), *choices]), resolve=False)

    def walk(node: Any, path: str) -> list[str]:
        if not isinstance(node, dict):
            return [path]
        return [key for name, value in node.items() for key in walk(value, f"{path}.{name}" if path else str(name))]

    return walk(tree, "")
