"""Expert pruning: the experts of a finished run that some of its pairs use, by the routing of their development sets,
and the scores of their test sets before and after (Koishekenov et al., arXiv:2212.09811)."""

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.config import ROOT, compose_tree
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import UNNAMED
from pipeline.decode.pruning import SMALLEST, Pruning, check_gates, smallest
from pipeline.decode.ranking import Metric, choose, rounded, score
from pipeline.jobs.hosts import check_launcher
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.model.flops import count_parameters
from pipeline.routing import read_layers, routing
from pipeline.schema import build
from pipeline.stage import Artifact, Store, check_writable, write_atomically
from pipeline.systems import translation
from pipeline.translation import PRUNED, FinishedRun

logger = logging.getLogger(__name__)

BYTES = 4  # of a parameter in float32


@dataclass(frozen=True, kw_only=True)
class PruningConfig:
    """What configs/pruning.yaml says. keep: share of the experts of all MoE layers; at_least: experts of each layer."""

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
            raise ValueError("pairs is empty; give the directions to prune for, such as pairs=[de-en]")
        if not 0 < self.keep <= 1:
            raise ValueError(
                f"keep={self.keep} is no share of the experts; choose one above 0 and up to 1, such as 0.5"
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
    """The configuration of `make prune`. Raises ValueError with what to change."""
    return build(PruningConfig, compose_tree("pruning", overrides))


def prune(config: PruningConfig) -> Path:
    """Write the pruning, its scores beside it, and print them; the path of the pruning."""
    check_launcher(config.runtime)
    store = Store(ROOT / config.runtime.artifacts)
    run = FinishedRun.open(config.run, runs=ROOT / config.runtime.runs, store=store)
    pairs = list(dict.fromkeys(run.pair(text) for text in config.pairs))
    model = build(ModelConfig, run.record()["config"]["model"], "model")
    check_gates(model.moe)
    at_least = _at_least(config, model)
    directory = run.directory / PRUNED
    check_writable(directory, "runtime.runs")
    encoded = _encoded(store, run)
    evidence = _evidence(config, run, pairs)
    recorded = routing(store, run.model, decode=run.decode, runtime=config.runtime, label=run.name)
    statistics = {
        name: {pair.name: of_pairs[pair.name] for pair in run.pairs if pair in evidence}
        for name, of_pairs in read_layers(recorded).items()
    }
    pruning = _pruning(config, run, model, pairs, evidence, statistics, at_least)
    path = directory / f"{_name(config, pairs)}.json"
    before, after = _translations(config, store, run, pairs, encoded, pruning)
    write_atomically(path, pruning.to_json())
    _report(config, pairs, before, after, _cost(run, model, pruning), path)
    return path


def _name(config: PruningConfig, pairs: Sequence[LangPair]) -> str:
    return config.name or UNNAMED.sub("-", f"{'_'.join(pair.name for pair in pairs)}-{config.keep:g}")


def _at_least(config: PruningConfig, model: ModelConfig) -> dict[str, int]:
    """Experts that each layer keeps at least. Raises ValueError where `keep` leaves fewer."""
    E, layers = model.moe.num_experts, model.moe_layers()
    if not layers:
        raise ValueError("the run has no MoE layer; there is nothing to prune")
    found = {name: max(config.at_least, smallest(model.moe, decoder=name.startswith("decoder"))) for name in layers}
    least, most = sum(found.values()), max(found.values())
    if most > E:
        raise ValueError(f"at_least={config.at_least}: a layer of the run has {E} experts; choose {E} or fewer")
    if rounded(config.keep * E) < most if config.per_layer else rounded(config.keep * E * len(layers)) < least:
        raise ValueError(
            f"keep={config.keep} of {E} experts a layer is too few: each layer keeps at least {most}, because its gate "
            f"needs them or at_least={config.at_least} says so; choose keep={most / E:g} or more"
        )
    return found


def _encoded(store: Store, run: FinishedRun) -> dict[LangPair, Artifact]:
    """Encoded rows of each pair of the run."""
    inputs = store.inputs(run.model)
    return {pair: inputs[pair.name] for pair in run.pairs}


def _evidence(config: PruningConfig, run: FinishedRun, pairs: Sequence[LangPair]) -> dict[LangPair, tuple[bool, bool]]:
    """Pairs whose routing speaks: (for the encoder, for the decoder)."""
    if config.evidence == "pair":
        return dict.fromkeys(pairs, (True, True))
    sources, targets = {pair.src for pair in pairs}, {pair.tgt for pair in pairs}
    found = {pair: (pair.src in sources, pair.tgt in targets) for pair in run.pairs}
    return {pair: sides for pair, sides in found.items() if any(sides)}


def _pruning(
    config: PruningConfig,
    run: FinishedRun,
    model: ModelConfig,
    pairs: Sequence[LangPair],
    evidence: Mapping[LangPair, tuple[bool, bool]],
    statistics: Mapping[str, Any],
    at_least: Mapping[str, int],
) -> Pruning:
    """The experts to keep."""
    scores = {}
    for name in model.moe_layers():
        speaking = [pair.name for pair, sides in evidence.items() if sides[name.startswith("decoder")]]
        scores[name] = score([statistics[name][pair] for pair in speaking], config.metric)
    return Pruning(
        run=run.name,
        model=f"{run.model.stage}/{run.model.key}",
        pairs=[pair.name for pair in pairs],
        num_experts=model.moe.num_experts,
        experts=choose(scores, keep=config.keep, per_layer=config.per_layer, at_least=at_least),
        how={key: getattr(config, key) for key in ("keep", "metric", "per_layer", "evidence", "at_least")},
        statistics=dict(statistics),
    )


def _translations(
    config: PruningConfig,
    store: Store,
    run: FinishedRun,
    pairs: Sequence[LangPair],
    encoded: Mapping[LangPair, Artifact],
    pruning: Pruning,
) -> tuple[Artifact, Artifact]:
    """By the whole model and by the pruned one; those of the run itself where they are still there, and what else was
    in their batches does not matter."""
    cleaned = {pair: store.inputs(artifact)["bitext"] for pair, artifact in encoded.items()}
    of_pairs = {pair: cleaned[pair] for pair in pairs}
    common: dict[str, Any] = {
        "decode": run.decode,
        "vocabulary": run.vocabulary,
        "model": run.model,
        "runtime": config.runtime,
    }
    own = translation(cleaned=cleaned, label=run.name, **common)
    published = None if run.decode.depends_on_batch else store.published(own)
    before = published or store.get(translation(cleaned=of_pairs, label=run.name, **common))
    label = f"{run.name} pruned"
    return before, store.get(translation(cleaned=of_pairs, label=label, pruning=pruning, **common))


def _cost(run: FinishedRun, model: ModelConfig, pruning: Pruning) -> dict[str, int]:
    """Experts, parameters and their bytes in float32 before and after."""
    sizes = json.loads((run.vocabulary.path / "vocab.json").read_text(encoding="utf-8"))
    parameters = count_parameters(
        model,
        source_vocabulary=sizes["source_size"],
        target_vocabulary=sizes["target_size"],
        shared=sizes["shared"],
    ).total
    kept = removed = 0
    of_expert: defaultdict[bool, int] = defaultdict(int)
    for decoder in (False, True):
        of_expert[decoder] = model.dim * (2 * model.moe.expert_dim + model.moe.gate_of(decoder=decoder).router_width)
    for name, experts in pruning.experts.items():
        kept += len(experts)
        removed += (pruning.num_experts - len(experts)) * of_expert[name.startswith("decoder")]
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
