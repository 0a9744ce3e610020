"""`make prune`: keep the experts of a finished run that some of its pairs use (Koishekenov et al., arXiv:2212.09811).

The routing of development sets decides which experts are kept; the test sets are scored before and after.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.config import ROOT, compose_tree
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import UNNAMED
from pipeline.dag.artifact import Artifact
from pipeline.dag.stage import Stage
from pipeline.dag.stages import routing, translate
from pipeline.dag.store import Store
from pipeline.dag.system import vocabulary_sizes
from pipeline.dag.work import read_routing
from pipeline.decode.experts.pruning import SMALLEST, Pruning, check_gates, smallest
from pipeline.decode.experts.ranking import Metric, choose, rounded, score
from pipeline.files import check_writable, write_atomically
from pipeline.finished_run import PRUNED, FinishedRun
from pipeline.jobs.hosts import check_launcher
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.model.flops import count_parameters, network_parameters
from pipeline.schema import build

logger = logging.getLogger(__name__)

BYTES = 4  # size of a parameter in float32


@dataclass(frozen=True, kw_only=True)
class PruningConfig:
    """The settings of configs/pruning.yaml.

    keep: share of the experts of all MoE layers.
    at_least: number of experts that every layer keeps.
    """

    run: str
    pairs: list[str]
    keep: float
    name: str
    metric: Metric
    per_layer: bool
    evidence: Literal["pair", "language"]
    at_least: int
    resamples: int
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError("PAIR is empty; give the direction to prune for, or several, such as PAIR=de-en")
        if not 0 < self.keep <= 1:
            raise ValueError(
                f"KEEP={self.keep} is no share of the experts; choose one above 0 and up to 1, such as 0.5"
            )
        if self.name and UNNAMED.search(self.name):
            raise ValueError(f"name={self.name!r}: a pruning is named by letters, digits, dots, - and _ alone")
        if self.at_least < SMALLEST:
            raise ValueError(f"at_least={self.at_least}: a gate needs {SMALLEST} experts to choose from, or more")
        if self.runtime.decode_experts == "sharded":
            raise ValueError("runtime.decode_experts=sharded: a pruned model is not cut further; set it to replicated")
        if self.resamples < 100:
            raise ValueError(f"resamples={self.resamples}: an interval needs at least 100; 1000 is usual")


def load_pruning(overrides: Sequence[str]) -> PruningConfig:
    """Return the configuration of `make prune`. Raises ValueError with what to change."""
    return build(PruningConfig, compose_tree("pruning", overrides))


def prune(config: PruningConfig) -> Path:
    """Write the pruning and its scores, print the scores, and return the path of the pruning."""
    check_launcher(config.runtime)
    store = Store(ROOT / config.runtime.artifacts)
    run = FinishedRun.open(config.run, runs=ROOT / config.runtime.runs, store=store)
    run.decode_with({}, config.runtime.device)  # raises ValueError where its precision does not suit the device
    pairs = list(dict.fromkeys(run.pair(text) for text in config.pairs))
    model = build(ModelConfig, run.record()["config"]["model"], "model")
    check_gates(model.moe)
    at_least = _at_least(config, model)
    directory = run.directory / PRUNED
    check_writable(directory, "runtime.runs")
    path = directory / f"{_name(config, pairs)}.json"
    if path.exists() and not config.runtime.replace:
        _check_replacement(path, config, run, pairs)
    evidence = _evidence(config, run, pairs)
    inputs = run.inputs(store)
    recorded = store.get(routing(run.model, inputs, decode=run.decode, runtime=config.runtime, label=run.name))
    statistics = {
        layer: {pair.name: measures[pair.name] for pair in run.pairs if pair in evidence}
        for layer, measures in read_routing(recorded).items()
    }
    pruning = _pruning(config, run, model, pairs, evidence, statistics, at_least)
    before, after = _translations(config, store, run, pairs, pruning)
    write_atomically(path, pruning.to_json())
    _report(config, pairs, before, after, _cost(run, model, pruning), path)
    return path


def _name(config: PruningConfig, pairs: Sequence[LangPair]) -> str:
    return config.name or UNNAMED.sub("-", f"{'_'.join(pair.name for pair in pairs)}-{config.keep:g}")


def _settings(config: PruningConfig) -> dict[str, Any]:
    """Return the settings of the choice."""
    return {key: getattr(config, key) for key in ("keep", "metric", "per_layer", "evidence", "at_least")}


def _check_replacement(path: Path, config: PruningConfig, run: FinishedRun, pairs: Sequence[LangPair]) -> None:
    """Raise ValueError where the pruning in a file is damaged, or another one than the command asks for."""
    earlier = Pruning.read(path)
    values = {**_settings(config), "PAIR": [pair.name for pair in pairs], "model": _model(run)}
    old = {**earlier.how, "PAIR": earlier.pairs, "model": earlier.model}
    different = [
        f"{key}={old.get(key)} there and {value} here" for key, value in values.items() if old.get(key) != value
    ]
    if different:
        raise ValueError(
            f"{path} is another pruning: {', '.join(different)}; choose another name for this one, as "
            f"ARGS=name={path.stem}-2, or replace it by REPLACE=1"
        )


def _model(run: FinishedRun) -> str:
    return f"{run.model.stage}/{run.model.key}"


def _at_least(config: PruningConfig, model: ModelConfig) -> dict[str, int]:
    """Return how many experts each layer must keep. Raises ValueError where `keep` leaves fewer."""
    E, layers = model.moe.num_experts, model.moe_layers()
    if not layers:
        raise ValueError("the run has no MoE layer; there is nothing to prune")
    minimum = {name: max(config.at_least, smallest(model.moe, decoder=name.startswith("decoder"))) for name in layers}
    least, most = sum(minimum.values()), max(minimum.values())
    if most > E:
        raise ValueError(f"at_least={config.at_least}: a layer of the run has {E} experts; choose {E} or fewer")
    if rounded(config.keep * E) < most if config.per_layer else rounded(config.keep * E * len(layers)) < least:
        raise ValueError(
            f"KEEP={config.keep} of {E} experts a layer is too few: each layer keeps at least {most}, because its gate "
            f"needs them or at_least={config.at_least} says so; choose KEEP={most / E:g} or more"
        )
    return minimum


def _evidence(config: PruningConfig, run: FinishedRun, pairs: Sequence[LangPair]) -> dict[LangPair, tuple[bool, bool]]:
    """Return the pairs whose routing decides: each with (for the encoder, for the decoder)."""
    if config.evidence == "pair":
        return dict.fromkeys(pairs, (True, True))
    sources, targets = {pair.src for pair in pairs}, {pair.tgt for pair in pairs}
    sides = {pair: (pair.src in sources, pair.tgt in targets) for pair in run.pairs}
    return {pair: used for pair, used in sides.items() if any(used)}


def _pruning(
    config: PruningConfig,
    run: FinishedRun,
    model: ModelConfig,
    pairs: Sequence[LangPair],
    evidence: Mapping[LangPair, tuple[bool, bool]],
    statistics: Mapping[str, Any],
    at_least: Mapping[str, int],
) -> Pruning:
    """Choose the experts to keep."""
    scores = {}
    for name in model.moe_layers():
        deciding = [pair.name for pair, sides in evidence.items() if sides[name.startswith("decoder")]]
        scores[name] = score([statistics[name][pair] for pair in deciding], config.metric)
    return Pruning(
        run=run.name,
        model=_model(run),
        pairs=[pair.name for pair in pairs],
        num_experts=model.moe.num_experts,
        experts=choose(scores, keep=config.keep, per_layer=config.per_layer, at_least=at_least),
        how=_settings(config),
        statistics=dict(statistics),
    )


def _translations(
    config: PruningConfig,
    store: Store,
    run: FinishedRun,
    pairs: Sequence[LangPair],
    pruning: Pruning,
) -> tuple[Artifact, Artifact]:
    """Translate the test sets by the whole model and by the pruned one.

    The run's own translations are taken where they still exist and do not depend on what else was in their batches.
    """
    encoded = run.inputs(store)
    cleaned = {pair: store.inputs(encoded[pair.name])["bitext"] for pair in run.pairs}

    def declare(pairs: Sequence[LangPair], label: str, pruning: Pruning | None = None) -> Stage:
        return translate(
            {pair: cleaned[pair] for pair in pairs},
            run.vocabulary,
            run.model,
            decode=run.decode,
            runtime=config.runtime,
            label=label,
            pruning=pruning,
        )

    published = None if run.decode.depends_on_batch else store.published(declare(run.pairs, run.name))
    before = published or store.get(declare(pairs, run.name))
    return before, store.get(declare(pairs, f"{run.name} pruned", pruning))


def _cost(run: FinishedRun, model: ModelConfig, pruning: Pruning) -> dict[str, int]:
    """Return the number of experts, of parameters and of their bytes in float32, before and after."""
    sizes = vocabulary_sizes(run.vocabulary)
    parameters = count_parameters(
        model,
        source_vocabulary=sizes["source_size"],
        target_vocabulary=sizes["target_size"],
        shared=sizes["shared"],
    ).total
    kept = removed = 0
    expert_size: defaultdict[bool, int] = defaultdict(int)
    for decoder in (False, True):
        router = model.moe.gate_of(decoder=decoder).router_shapes(1, model.dim)
        expert_size[decoder] = network_parameters(model, model.moe.expert_dim) + sum(map(math.prod, router.values()))
    for name, experts in pruning.experts.items():
        kept += len(experts)
        removed += (pruning.num_experts - len(experts)) * expert_size[name.startswith("decoder")]
    return {
        "experts_before": pruning.num_experts * len(pruning.experts),
        "experts_after": kept,
        "parameters_before": parameters,
        "parameters_after": parameters - removed,
        "bytes_before": BYTES * parameters,
        "bytes_after": BYTES * (parameters - removed),
    }


def _report(
    config: PruningConfig,
    pairs: Sequence[LangPair],
    before: Artifact,
    after: Artifact,
    cost: Mapping[str, int],
    path: Path,
) -> None:
    """Save and print the scores before and after."""
    from eval.score.before_after import changes, save_changes, text_table

    targets = {pair.name: pair.tgt for pair in pairs}
    rows = changes(before.path, after.path, targets, n_resamples=config.resamples)
    save_changes(path.with_suffix(".csv"), rows, cost)
    print(
        f"experts {cost['experts_after']} of {cost['experts_before']}, parameters "
        f"{cost['parameters_after']:,} of {cost['parameters_before']:,} "
        f"({cost['bytes_after'] / 1e6:,.1f} of {cost['bytes_before'] / 1e6:,.1f} MB in float32)"
    )
    print(text_table(rows))
    logger.info("pruning: %s; to translate with it: experts=%s", path, path.stem)
