"""The configuration of a run, composed by Hydra and checked into plain dataclasses.

No other file sees a DictConfig.
"""

import contextlib
import io
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from eval.records.results import RESERVED
from eval.score.by_command import check_command
from pipeline.baseline_config import BUDGETS, BaselinesConfig, budget_cautions, complete
from pipeline.batch.config import SUBWORD_SETTINGS, BatchConfig
from pipeline.composition_errors import check_single_choices, explain
from pipeline.corpus.config import CorpusConfig, corpus_defaults
from pipeline.corpus.languages import LangPair, check_pair_form
from pipeline.decode.config import DECODE_UNSET, DecodeConfig
from pipeline.earlier_runs import with_vocabulary_of_run
from pipeline.group_choices import chosen_values, without_stale
from pipeline.jobs.default_precision import check_int8, default_precision, fp32_caution
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.components import ALL
from pipeline.model.config import UNSET as MODEL_UNSET
from pipeline.model.config import ModelConfig
from pipeline.parallel.layout import layout_of
from pipeline.parallel.legality import cautions, check_sizes, check_translating
from pipeline.recipe_errors import Composer
from pipeline.schema import build
from pipeline.score_config import OWN, CommandsConfig, ScoreConfig
from pipeline.spelling import suggestion
from pipeline.train.components import check_components
from pipeline.train.config import VALIDATE_UNSET, TrainConfig
from pipeline.vocab.config import OF_A_RUN, VocabConfig

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent
OPEN = (
    "batch.augment",
    "batch.mixture.groups",
    "batch.mixture.sources",
    "train.learning_rate_factors",
    "layout",
)  # mappings whose keys the user chooses
PLACE = ("runtime", "layout")  # parts that decide where a run executes; of them only the device affects its result
# Settings that are left out of records where they have no effect, so that the keys of stages are those of old versions.
UNSET: dict[str, Any] = {
    **{field.name: field.default for field in fields(VocabConfig) if field.name in OF_A_RUN},
    **(MODEL_UNSET | DECODE_UNSET | VALIDATE_UNSET),
    "trainable": ALL,
    "learning_rate_factors": {},
    "lora": None,
    "learned": None,
    "test_sets": [OWN],
    **{field.name: field.default for field in fields(CommandsConfig)},
    "commands": {},
    "augment": {},
    **{field.name: field.default for field in fields(BatchConfig) if field.name in SUBWORD_SETTINGS},
}
_ANY_CORPUS = "rules"  # the corpus configuration without files


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """The report of a run.

    show: show translations and removed rows of the user's own files, and of text whose licence is known to allow it;
        false hides them.
    """

    show: bool = True

    def to_key(self) -> dict[str, Any]:
        """Return the part of a stage's settings; it is empty for the defaults, so that older runs keep their keys."""
        return {} if self == ReportConfig() else {"report": asdict(self)}


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
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError('pairs is empty; give language pairs, for example LANG_PAIRS="de-en fr-en"')
        for pair in self.pairs:
            check_pair_form(pair)
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ValueError(f"NAME={self.name!r} must be a plain directory name")
        if self.name in RESERVED:
            raise ValueError(f"NAME={self.name} is what a report calls {RESERVED[self.name]}; choose another name")
        layout = layout_of(self.layout, self.runtime)
        check_sizes(layout, model=self.model, batch=self.batch, vocab=self.vocab)
        if self.train.translates:
            check_translating(layout, setting=f"train.validate_metric={self.train.validate_metric}", model=self.model)
        check_components(self.train, self.model, layout, extended=bool(self.vocab.extend))
        ep, num_experts = self.runtime.ep, self.model.moe.num_experts
        if self.runtime.decode_experts == "sharded" and num_experts % ep:  # the layout of training does not matter
            raise ValueError(
                f"model.moe.num_experts={num_experts} is not divisible by runtime.ep={ep}, over which "
                "runtime.decode_experts=sharded cuts them; set another runtime.ep, or runtime.decode_experts=replicated"
            )
        variants = self.baselines.variants()
        for tier in variants:
            check_components(tier.train, tier.model)
        for command in {train.validate_command for train in (self.train, *(tier.train for tier in variants))}:
            if command:
                check_command("train.validate_command", command)
        self.model.moe.check_training()
        self.model.moe.check_evaluation_capacity(self.decode.capacity_factor)
        rule = self.decode.averaged_rule
        for train in (self.train, *(tier.train for tier in variants)):
            num_kept = getattr(train.checkpoints, rule)
            if self.decode.average > max(num_kept, 1):
                raise ValueError(
                    f"decode.average={self.decode.average} of the {self.decode.average_of} checkpoints needs as many: "
                    f"set train.checkpoints.{rule}={self.decode.average} (it is {num_kept})"
                )

    def with_tasks(self, pairs: Sequence[LangPair]) -> "RunConfig":
        """Return the configuration with the pairs in the gates that choose by task. Raises ValueError as those do."""
        moe = self.model.moe.with_pairs([f"{pair.src}:{pair.tgt}" for pair in pairs])
        return replace(self, model=replace(self.model, moe=moe))

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as plain values, without those of UNSET."""
        return asdict(self, dict_factory=set_values)


def set_values(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the items as a mapping, without the values of UNSET: a `dict_factory` of `asdict`."""
    return {key: value for key, value in items if key not in UNSET or value != UNSET[key]}


def load_config(overrides: Sequence[str], root: Path = ROOT) -> RunConfig:
    """Compose `configs/config.yaml`, a recipe and `key=value` overrides. Raises ValueError with what to change.

    `corpus=` may also name a directory, relative to the working directory. Without `pairs=` it means all its pairs.
    """
    _check_effect(overrides)
    check_single_choices(overrides, root)
    overrides, directory = corpus_directory(overrides, root)
    tree = compose_tree("config", overrides, root)
    if directory is not None:
        tree = _with_directory(tree, directory, overrides)
    baselines = complete(tree)
    if tree["vocab"].get("from_run"):
        runs = root / tree["runtime"]["runs"]
        tree = {**tree, "vocab": with_vocabulary_of_run(tree["vocab"], overrides, runs=runs, root=root)}
    config = build(RunConfig, {**tree, "baselines": baselines})
    layout, sizes = layout_of(config.layout, config.runtime), {"target_vocabulary": config.vocab.target_size}
    replicated = cautions(layout, model=config.model, shape=config.batch.shapes[0], **sizes)
    budgets = _budget_cautions(tree, overrides, root)
    precisions = {"train": config.train.precision, "decode": config.decode.precision}
    fp32 = fp32_caution(config.runtime.device, **precisions)
    if config.decode.precision == "int8":
        check_int8(config.runtime.device)
    for caution in filter(None, (*config.model.moe.cautions(), *replicated, *budgets, fp32)):
        logger.warning("warning: %s", caution)
    return config


def _budget_cautions(tree: dict[str, Any], overrides: Sequence[str], root: Path) -> list[str]:
    """Return warnings where overrides change the budget of the run, and not that of its bilingual models."""
    keys = [override.lstrip("+").partition("=")[0] for override in overrides]
    if any(re.match(r"baselines\.tiers\b", key) for key in keys):
        return []  # whoever writes the tiers has chosen their budgets
    budgets = ("train", *(f"train.{budget}" for budget in BUDGETS))
    kept = [override for key, override in zip(keys, overrides, strict=True) if key not in budgets]
    return budget_cautions(tree, compose_tree("config", kept, root)) if len(kept) < len(overrides) else []


def compose_tree(primary: str, overrides: Sequence[str], root: Path = ROOT) -> dict[str, Any]:
    """Compose `configs/<primary>.yaml` with overrides into plain values. Raises ValueError with what to change."""
    from hydra import compose, initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    faults = (HydraException, OmegaConfBaseException, YAMLError, ValueError, RecursionError)
    OmegaConf.register_new_resolver("share", _share, replace=True)
    OmegaConf.register_new_resolver("precision_on", default_precision, replace=True)

    def read(file: Path) -> dict[str, Any]:
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        assert isinstance(content, dict)
        return {str(key): value for key, value in content.items()}

    chosen = chosen_values(overrides, root / "configs", read) if primary == "config" else {}
    ConfigStore.instance().store(group="chosen", name="values", node=chosen, package="_global_")
    ConfigStore.instance().store(group="corpus", name=_ANY_CORPUS, node=corpus_defaults())
    ConfigStore.instance().store(group="decode", name="defaults", node=_decode_defaults())
    ConfigStore.instance().store(group="decode", name="unset", node=dict.fromkeys(asdict(DecodeConfig())))

    def composed(words: Sequence[str]) -> Any:
        configs = str(root / "configs")
        with contextlib.redirect_stderr(io.StringIO()), initialize_config_dir(configs, version_base="1.3"):
            return compose(primary, overrides=[_recipes(root), *words])

    def unresolved(words: Sequence[str]) -> Any:
        return OmegaConf.to_container(composed(words), resolve=False)

    try:
        words = [*(["+chosen=values"] if chosen else []), *overrides]
        tree = OmegaConf.to_container(composed(words), resolve=True, throw_on_missing=True)
    except faults as error:
        composer = Composer(primary=primary, compose=unresolved, faults=faults, root=root, open_mappings=OPEN)
        raise ValueError(explain(error, overrides, composer)) from error
    assert isinstance(tree, dict)
    return without_stale({str(key): value for key, value in tree.items()}, chosen, overrides)


def _decode_defaults() -> dict[str, Any]:
    return {**asdict(DecodeConfig()), "precision": "${precision_on:${runtime.device}}"}


def _share(share: float, whole: Any) -> Any:
    """Resolve `${share:0.05,${train.max_tokens}}`; a wrong type passes, and is an error of the setting it came from."""
    return round(share * whole) if isinstance(whole, int) else whole


def _check_effect(overrides: Sequence[str]) -> None:
    """Raise ValueError for keys that exist but would not do what they seem to say."""
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key == "recipe":
            raise ValueError(
                f"{override} only renames the settings; choose a recipe by RECIPE={value} or recipes={value}"
            )
        if re.match(r"hydra\b", key):
            raise ValueError(f"{override}: Hydra's own keys have no effect on this command; leave it out")


def corpus_directory(overrides: Sequence[str], root: Path) -> tuple[list[str], Path | None]:
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
