"""The bilingual baselines: a search over candidates on pairs that span the resources, carried over by resource, then
one model a pair, trained and translated.

A candidate is judged by its loss on the development set, in nats per character. The search translates nothing: test
sets have no part in it.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

from pipeline.baseline_config import BaselineSearch, BaselineTier
from pipeline.clock import makespan
from pipeline.config import RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.baseline_search import (
    Rows,
    SearchResult,
    Trial,
    by_resource,
    nearest,
    read_ledger,
    seconds,
    spanning_pairs,
)
from pipeline.dag.corpus import num_test_lines
from pipeline.dag.store import Listener, Store
from pipeline.dag.system import System, Trained, bilingual
from pipeline.dag.training import is_trained, prepare, train, train_and_translate
from pipeline.jobs.launch import stop_all
from pipeline.model.flops import forward_flops
from pipeline.tasks import side_by_side
from pipeline.vocab.encode import characters_per_token

logger = logging.getLogger(__name__)

TOKENS_OF_LINE = 30  # about the mean of a test set, for estimates

Cleaned = Mapping[LangPair, Artifact]
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The bilingual models of a run by falling resource, none where it has no tiers. search: None without a search."""

    trained: Sequence[Trained] = ()
    search: SearchResult | None = None


def prepare_baselines(config: RunConfig, store: Store, cleaned: Cleaned, rows: Rows) -> None:
    """Make the vocabulary and the encoded rows of each, so that all faults of the data show before a training."""
    pairs = cleaned if config.baselines.tiers else ()
    systems = [bilingual(pair, config.baselines.tier(rows[pair]), config.runtime) for pair in pairs]
    actions = [partial(prepare, store, cleaned, system) for system in systems]
    side_by_side(actions, at_once=config.runtime.data.stages_at_once)


def baselines(config: RunConfig, store: Store, cleaned: Cleaned, rows: Rows) -> Baselines:
    """Search if the configuration says so, then train and translate one model a pair."""
    if not config.baselines.tiers:
        return Baselines()
    settings = config.baselines.search
    result = search(config, settings, store, cleaned, rows) if settings is not None else None
    systems = baseline_systems(config, rows, result)
    searched = {trial.pair for trial in result.trials} if result else set()  # their models are trained already
    trained = _side_by_side(
        config,
        store,
        sorted(systems, key=lambda system: (system.pairs[0] not in searched, -_work(system))),
        partial(train_and_translate, config, store, cleaned),
        cost=lambda trained: seconds(trained.model) + seconds(trained.translations),
        what="bilingual models trained and translated",
    )
    return Baselines(trained=[trained[system.label] for system in systems], search=result)


def estimates(config: RunConfig, store: Store, cleaned: Cleaned, rows: Rows) -> dict[str, float]:
    """Return what is known of the time of a run before it trains, as `Listener.expect` takes it."""
    num_lines = sum(num_test_lines(cleaned).values())
    return {
        "translation": _translation_work(config, config.decode.beam, num_lines) / _work(config),
        "baselines": relative_cost(config, store, cleaned, rows),
        "capped": float(any(tier.train.patience for tier in config.baselines.variants())),
    }


def relative_cost(config: RunConfig, store: Store, cleaned: Cleaned, rows: Rows) -> float:
    """Estimate the time to train and translate by the models that are missing, in units of the main training.

    Their rows are encoded. The time is taken to follow the FLOPs of the whole budgets.
    """
    if not config.baselines.tiers:
        return 0.0
    candidates = candidate_systems(config, rows)
    searched = {pair for pair, _ in candidates}
    other_systems = [system for system in baseline_systems(config, rows, None) if system.pairs[0] not in searched]
    missing = [system for system in (*candidates.values(), *other_systems) if not is_trained(store, cleaned, system)]
    at_once = min(config.runtime.parallel_baselines, len(missing)) or 1
    main, tests = _work(config) / config.runtime.processes, num_test_lines(cleaned)
    translated = [system for system in other_systems if system in missing]
    translations = [_translation_work(system, config.decode.beam, tests[system.pairs[0]]) for system in translated]
    return (sum(map(_work, missing)) + sum(translations)) / at_once / main


def most_cost(config: RunConfig, num_pairs: int) -> float:
    """Return the most time that training takes, in units of the main training.

    The rows of the pairs need not be known.
    """
    settings = config.baselines.search
    searched = min(settings.pairs, num_pairs) if settings is not None else 0
    number = num_pairs - searched + (searched * len(settings.candidates) if settings is not None else 0)
    at_once = min(config.runtime.parallel_baselines, number)
    return number * max(map(_work, config.baselines.variants())) / at_once / (_work(config) / config.runtime.processes)


def search(config: RunConfig, settings: BaselineSearch, store: Store, cleaned: Cleaned, rows: Rows) -> SearchResult:
    """Train every candidate on the pairs that span the resources."""
    pairs = spanning_pairs(rows, settings.pairs)
    candidates = ", ".join(candidate.name for candidate in settings.candidates)
    logger.info("search: %s on %s", candidates, ", ".join(pair.name for pair in pairs))
    systems = candidate_systems(config, rows)

    def train_one(system: System) -> tuple[Artifact, float]:
        vocabulary, encoded, model = train(store, cleaned, system)
        return model, characters_per_token(vocabulary.path, encoded[system.pairs[0]].path)

    order = sorted(systems.values(), key=_work, reverse=True)
    models = _side_by_side(
        config, store, order, train_one, cost=lambda trained: seconds(trained[0]), what="candidates trained"
    )
    trials = []
    for (pair, name), system in systems.items():
        model, characters = models[system.label]
        trials.append(Trial(pair=pair, candidate=name, model=model, characters_per_token=characters))
    result = SearchResult(trials=trials, searched={pair: nearest(rows, pair, pairs) for pair in by_resource(rows)})
    for pair in pairs:
        losses = ", ".join(
            f"{trial.candidate} {trial.nats_per_character:.4f}" for trial in trials if trial.pair == pair
        )
        logger.info("search: %s takes %s; nats per character: %s", pair.name, result.winner(pair), losses)
    return result


def candidate_systems(config: RunConfig, rows: Rows) -> dict[tuple[LangPair, str], System]:
    """Return the systems that the search trains, by pair and candidate; none without a search."""
    settings = config.baselines.search
    return {
        (pair, candidate.name): replace(
            bilingual(pair, candidate.applied_to(config.baselines.tier(rows[pair])), config.runtime),
            label=f"candidate {candidate.name} {pair.name}",
        )
        for pair in (spanning_pairs(rows, settings.pairs) if settings is not None else ())
        for candidate in (settings.candidates if settings is not None else ())
    }


def baseline_systems(config: RunConfig, rows: Rows, result: SearchResult | None) -> list[System]:
    """Return the system of each pair, by falling resource: its tier with the settings of the winner of the search."""
    settings, systems = config.baselines.search, []
    for pair in by_resource(rows):
        tier = config.baselines.tier(rows[pair])
        if settings is not None and result is not None:
            tier = settings.candidate(result.winner(pair)).applied_to(tier)
        systems.append(bilingual(pair, tier, config.runtime))
    return systems


def text_table(baselines: Baselines, rows: Rows) -> str:
    """Return a table for a terminal: the model of each pair, and its quality."""
    from eval.records.run_record import read_translations
    from eval.score.metrics import scorer_for
    from eval.text_table import aligned

    lines = [["pair", "rows", "candidate", "size", "parameters", "best step", "loss", "BLEU"]]
    for trained in baselines.trained:
        (pair,), ledger = trained.system.pairs, read_ledger(trained.model)
        sentences = read_translations(trained.translations.path / f"{pair.name}.jsonl")
        references = [[sentence.reference for sentence in sentences]]
        score = scorer_for("bleu", pair.tgt).corpus_score([sentence.hypothesis for sentence in sentences], references)
        candidate = baselines.search.winner(pair) if baselines.search else "-"
        numbers = [f"{ledger['parameters']:,}", str(ledger["best_step"]), f"{ledger['validation_loss']:.4f}"]
        lines.append([pair.name, f"{rows[pair]:,}", candidate, ledger["size"], *numbers, f"{score.score:.2f}"])
    return aligned(lines, left=None)


def _work(system: System | RunConfig | BaselineTier) -> float:
    """Return about the FLOPs of a system's whole budget; early stopping may leave some of it."""
    forward = forward_flops(system.model, system.vocab.target_size)
    shape = system.batch.shapes[0]
    step = system.batch.groups_per_step * shape.rows * shape.source
    budgets = (system.train.max_tokens, system.train.max_steps * step)
    return min(budget for budget in budgets if budget) * (forward.source_token + forward.target_token)


def _translation_work(system: System | RunConfig, beam: int, num_lines: int) -> float:
    """Return the time to translate test lines, in the unit of `_work`: training takes three times the forward FLOPs."""
    forward = forward_flops(system.model, system.vocab.target_size)
    return num_lines * TOKENS_OF_LINE * (forward.source_token + beam * forward.target_token) / 3


def _side_by_side(
    config: RunConfig,
    store: Store,
    systems: Sequence[System],
    action: Callable[[System], Result],
    *,
    cost: Callable[[Result], float],
    what: str,
) -> dict[str, Result]:
    """Do `action` for each system, `runtime.parallel_baselines` at a time, begun in the order given.

    cost: seconds that a result took, whenever it was made.
    what: the results and what was done, for messages on how many are left.
    Returns the results by the label of their system.
    """
    at_once = config.runtime.parallel_baselines
    progress = _Progress(what, {system.label: _work(system) for system in systems}, at_once, store.listener)
    slots: SimpleQueue[int] = SimpleQueue()
    for slot in range(at_once):
        slots.put(slot)

    def act(system: System) -> Result:
        slot = slots.get()
        progress.begin(system.label)
        try:
            result = action(replace(system, slot=slot))
        finally:
            slots.put(slot)
        is_new = any(title.endswith(f" {system.label}") for title in store.ran)
        progress.end(system.label, cost(result), say=is_new)
        return result

    results = side_by_side([partial(act, system) for system in systems], at_once=at_once, stop=stop_all)
    return {system.label: result for system, result in zip(systems, results, strict=True)}


class _Progress:
    """Says from several threads how many systems are done, and about how long the others take.

    work: FLOPs of each system by label, in the order in which they begin.
    """

    def __init__(self, what: str, work: Mapping[str, float], at_once: int, listener: Listener | None) -> None:
        self.what, self.at_once, self.listener = what, at_once, listener
        self.work, self.total = dict(work), len(work)  # of the systems that are not done
        self.began: dict[str, float] = {}
        self.work_done, self.seconds = 0.0, 0.0
        self.lock = Lock()

    def begin(self, label: str) -> None:
        """Take note that work on a system begins."""
        with self.lock:
            self.began[label] = time.monotonic()

    def end(self, label: str, seconds: float, *, say: bool) -> None:
        """Count one more system. say: whether to tell the user, which is of no use for what an earlier run made."""
        from eval.number_format import duration

        with self.lock:
            self.work_done, self.seconds = self.work_done + self.work.pop(label), self.seconds + seconds
            if not say:
                return
            num_done, left = self.total - len(self.work), self._seconds_left()
            ending = f", ETA {duration(left)}" if self.work else ""
            logger.info("%d of %d %s%s", num_done, self.total, self.what, ending)
            if self.listener is not None:
                self.listener.batch(self.what, num_done=num_done, total=self.total, seconds_left=left)

    def _seconds_left(self) -> float:
        """Estimate the time until all systems are done, at the pace of those that are."""
        now, needs = time.monotonic(), {label: w * self.seconds / self.work_done for label, w in self.work.items()}
        running = [max(0.0, need - now + self.began[label]) for label, need in needs.items() if label in self.began]
        return makespan(running, [need for label, need in needs.items() if label not in self.began], self.at_once)
