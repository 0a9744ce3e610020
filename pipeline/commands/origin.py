"""Find and check, before any work, what a new run takes from finished runs."""

from pathlib import Path

from pipeline.config import ROOT, RunConfig
from pipeline.dag.reuse import check_change, check_member_vocabulary, check_vocabulary_of
from pipeline.dag.store import Store
from pipeline.dag.system import EarlierRun, Origin
from pipeline.earlier_runs import FROM_RUN, RECORD
from pipeline.finished_run import FinishedRun, find_ensemble
from pipeline.train import retention

START = "train.initialize_from"


def find_origin(config: RunConfig) -> Origin:
    """Return the vocabulary of `vocab.from_run`, the weights of `train.initialize_from` and `decode.ensemble`.

    Raises ValueError for a run that has not finished, for artifacts that are gone, for weights that do not fit the
    model or the vocabulary, and for a change that the vocabulary does not allow.
    """
    store, runs = Store(ROOT / config.runtime.artifacts), ROOT / config.runtime.runs
    members = find_ensemble(config.decode, config.runtime, config.name, runs=runs, store=store)
    ensemble = [member.as_earlier_run() for member in members]
    vocabulary = None
    if config.vocab.from_run:
        vocabulary = FinishedRun.open(config.vocab.from_run, runs=runs, store=store, setting=FROM_RUN).vocabulary
        check_change(config.vocab, vocabulary)
        for member in ensemble if not config.vocab.changed else ():  # of one that is made, a stage says it later
            check_member_vocabulary(member, config.name, vocabulary)
    if not config.train.initialize_from:
        return Origin(vocabulary=vocabulary, ensemble=ensemble, store=store)
    checkpoint, initial = _checkpoint(config, store, runs)
    from pipeline.train.upcycling import check_fit, trained_config  # late, because it loads torch

    check_fit(
        config.train.initialize_from,
        checkpoint,
        config.model,
        shared=config.vocab.shared,
        trainable=config.train.components,
    )
    if vocabulary is not None:
        check_vocabulary_of(checkpoint, vocabulary)
    if initial is not None:  # it translates too, to compare
        try:
            trained_config(checkpoint).moe.check_evaluation_capacity(config.decode.capacity_factor)
        except ValueError as error:
            raise ValueError(f"{START}={initial.run}: in that model {error}") from error
    return Origin(vocabulary=vocabulary, checkpoint=checkpoint, initial=initial, ensemble=ensemble, store=store)


def _checkpoint(config: RunConfig, store: Store, runs: Path) -> tuple[Path, EarlierRun | None]:
    """Return the checkpoint at the path of `train.initialize_from`, or the best one of the run that it names.

    The second value is the run.
    """
    name = config.train.initialize_from
    if name == config.name:
        raise ValueError(f"{START}={name} is the run itself; give the new run another NAME")
    is_run = any((place / name / RECORD).is_file() for place in (runs, runs.parent, ROOT))
    if is_run or ("/" not in name and not Path(name).exists()):
        run = FinishedRun.open(name, runs=runs, store=store, setting=START)
        return retention.resolve(run.model.path), run.as_earlier_run()
    checkpoint = retention.resolve(Path(name)).resolve()
    if store.root.resolve() in checkpoint.parents:  # of a train stage, which nobody can remove until this command ends
        stage, key, *_ = checkpoint.relative_to(store.root.resolve()).parts
        if not key.endswith(".partial"):  # a half-done training is held by who does it
            store.hold(stage, key)
    return checkpoint, None
