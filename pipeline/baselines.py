"""The bilingual baselines: a search over candidates on pairs that span the resources, carried over by resource, then
one model a pair, trained and translated.

A candidate is judged by its loss on the development set. The search translates nothing: test sets have no part in it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

from pipeline.baseline_config import BaselineSearch
from pipeline.baseline_search import Found, Rows, Trial, by_resource, ledger, nearest, seconds, spanning_pairs
from pipeline.config import RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.jobs.launch import stop_all
from pipeline.model.flops import forward_flops
from pipeline.stage import Artifact, Listener, Store
from pipeline.systems import System, Trained, bilingual, prepare, train, train_and_translate
from pipeline.tasks import side_by_side

logger = logging.getLogger(__name__)

Cleaned = Mapping[LangPair, Artifact]
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The bilingual models of a run by falling resource, none where it has no tiers. found: None without a search."""

    trained: Sequence[Trained] = ()
    found: Found | None = None


def prepare_baselines(config: RunConfig, store: Store, cleaned: Cleaned, rows: Rows) -> None:
    """vocab -> encode for each, so that every fault of the data shows before anything is trained."""
    pairs = cleaned if config.baselines.tiers else ()
    systems = [bilingual(pair, config.baselines.tier(rows[pair]), config.runtime) for pair in pairs]
    actions = [partial(prepare, store, cleaned, system) for system in systems]
    side_by_side(actions, at_once=config.runtime.data.stages_at_once)


def baselines(config: RunConfig, store: Store, cleaned: Cleaned, rows: Rows) -> Baselines:
    """Search if the configuration says so, then train and translate one model a pair."""
    if not config.baselines.tiers:
        return Baselines()
    asked = config.baselines.search
    found = search(config, asked, store, cleaned, rows) if asked is not None else None
    systems = chosen(config, rows, found)
    searched = {trial.pair for trial in found.trials} if found else set()  # their models are there already
    trained = _side_by_side(
        config,
        store,
        sorted(systems, key=lambda system: (system.pairs[0] not in searched, -_work(system))),
        partial(train_and_translate, config, store, cleaned),
        cost=lambda result: seconds(result.model) + seconds(result.translations),
        what="bilingual models trained and translated",
    )
    return Baselines(trained=[trained[system.label] for system in systems], found=found)


def search(config: RunConfig, asked: BaselineSearch, store: Store, cleaned: Cleaned, rows: Rows) -> Found:
    """Train every candidate on the pairs that span the resources."""
    pairs = spanning_pairs(rows, asked.pairs)
    logger.info("search: %s on %s", ", ".join(c.name for c in asked.candidates), ", ".join(p.name for p in pairs))
    systems = {
        (pair, candidate.name): replace(
            bilingual(pair, candidate.of(config.baselines.tier(rows[pair])), config.runtime),
            label=f"candidate {candidate.name} {pair.name}",
        )
        for pair in pairs
        for candidate in asked.candidates
    }

    def one(system: System) -> Artifact:
        vocabulary, encoded = prepare(store, cleaned, system)
        return train(store, vocabulary, encoded, system)

    order = sorted(systems.values(), key=_work, reverse=True)
    models = _side_by_side(config, store, order, one, cost=seconds, what="candidates trained")
    trials = [Trial(pair=pair, candidate=name, model=models[of.label]) for (pair, name), of in systems.items()]
    found = Found(trials=trials, searched={pair: nearest(rows, pair, pairs) for pair in by_resource(rows)})
    for pair in pairs:
        losses = ", ".join(f"{trial.candidate} {trial.loss:.4f}" for trial in trials if trial.pair == pair)
        logger.info("search: %s takes %s; validation cross-entropy %s", pair.name, found.winner(pair), losses)
    return found


def chosen(config: RunConfig, rows: Rows, found: Found | None) -> list[System]:
    """The system of each pair, by falling resource: its tier, as the candidate that it takes."""
    asked, systems = config.baselines.search, []
    for pair in by_resource(rows):
        tier = config.baselines.tier(rows[pair])
        if asked is not None and found is not None:
            tier = asked.candidate(found.winner(pair)).of(tier)
        systems.append(bilingual(pair, tier, config.runtime))
    return systems


def text_table(result: Baselines, rows: Rows) -> str:
    """For a terminal: what each pair's model is, and how good."""
    from eval.records.run_record import read_translations
    from eval.score.metrics import scorer_for
    from eval.text_table import aligned

    lines = [["pair", "rows", "candidate", "size", "parameters", "best step", "loss", "BLEU"]]
    for each in result.trained:
        (pair,), of = each.system.pairs, ledger(each.model)
        sentences = read_translations(each.translations.path / f"{pair.name}.jsonl")
        references = [[sentence.reference for sentence in sentences]]
        score = scorer_for("bleu", pair.tgt).corpus_score([sentence.hypothesis for sentence in sentences], references)
        candidate = result.found.winner(pair) if result.found else "-"
        numbers = [f"{of['parameters']:,}", str(of["best_step"]), f"{of['validation_loss']:.4f}", f"{score.score:.2f}"]
        lines.append([pair.name, f"{rows[pair]:,}", candidate, of["size"], *numbers])
    return aligned(lines, left=None)


def _work(system: System) -> float:
    """About the FLOPs of a system's whole budget, some of which early stopping may leave."""
    forward = forward_flops(system.model, system.vocab.target_size)
    shape = system.batch.shapes[0]
    step = system.batch.groups_per_step * shape.rows * shape.source
    budgets = (system.train.max_tokens, system.train.max_steps * step)
    return min(budget for budget in budgets if budget) * (forward.source_token + forward.target_token)


def _side_by_side(
    config: RunConfig,
    store: Store,
    systems: Sequence[System],
    action: Callable[[System], Result],
    *,
    cost: Callable[[Result], float],
    what: str,
) -> dict[str, Result]:
    """What an action makes of each system, by label; `runtime.parallel_baselines` at a time, begun in the order given.
    After each that was not there already it is said how many are left. cost: seconds that a result took, whenever it
    was made."""
    at_once = config.runtime.parallel_baselines
    left = sum(map(_work, systems))
    progress = _Progress(what=what, left=left, total=len(systems), at_once=at_once, listener=store.listener)
    free: SimpleQueue[int] = SimpleQueue()
    for slot in range(at_once):
        free.put(slot)

    def one(system: System) -> Result:
        slot = free.get()
        try:
            result = action(replace(system, slot=slot))
        finally:
            free.put(slot)
        is_new = any(title.endswith(f" {system.label}") for title in store.ran)
        progress.done(_work(system), cost(result), say=is_new)
        return result

    results = side_by_side([partial(one, system) for system in systems], at_once=at_once, stop=stop_all)
    return {system.label: result for system, result in zip(systems, results, strict=True)}


class _Progress:
    """Says from several threads how much is done, and at most how long the rest takes. left: work."""

    def __init__(self, *, what: str, left: float, total: int, at_once: int, listener: Listener | None) -> None:
        self.listener = listener
        self.what, self.left, self.total, self.at_once = what, left, total, at_once
        self.num_done, self.spent, self.seconds = 0, 0.0, 0.0
        self.lock = Lock()

    def done(self, work: float, seconds: float, *, say: bool) -> None:
        from eval.number_format import duration

        with self.lock:
            self.num_done, self.spent, self.seconds = self.num_done + 1, self.spent + work, self.seconds + seconds
            self.left -= work
            if not say:
                return
            eta = self.left * self.seconds / self.spent / min(self.at_once, max(self.total - self.num_done, 1))
            rest = f", ETA {duration(eta)}" if self.num_done < self.total else ""
            logger.info("%d of %d %s%s", self.num_done, self.total, self.what, rest)
            if self.listener is not None:
                self.listener.batch(self.what, done=self.num_done, total=self.total, seconds_left=eta)
