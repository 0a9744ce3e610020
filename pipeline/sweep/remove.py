"""`make remove`: delete a run or a sweep with the artifacts that only it uses, or the artifacts that no run uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.report.page_record import RECORD as PAGE_RECORD
from pipeline.config import ROOT, compose_tree
from pipeline.dag.inventory import Inventory, size_of
from pipeline.dag.removal import Removal, remove_runs, remove_unused
from pipeline.dag.run_directory import remove_results
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.locks import is_locked
from pipeline.output import say
from pipeline.schema import build
from pipeline.spelling import suggestion
from pipeline.sweep.job import LOCK, STATE
from pipeline.sweep.runs import shown_bytes, shown_name
from pipeline.sweep.table import SWEEP


@dataclass(frozen=True, kw_only=True)
class RemoveConfig:
    """The settings of configs/remove.yaml."""

    run: str
    unused: bool
    dry: bool
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        if not self.run and not self.unused:
            raise ValueError(
                "NAME is empty; give the name of the run or sweep to delete (`make runs` lists them), or UNUSED=1 for "
                "the artifacts that no run uses"
            )
        if self.run and self.unused:
            raise ValueError(f"NAME={self.run} and UNUSED=1 are two commands; give one of them")


def load_remove(overrides: Sequence[str]) -> RemoveConfig:
    """Return the configuration of `make remove`. Raises ValueError with what to change."""
    return build(RemoveConfig, compose_tree("remove", overrides))


def remove(config: RemoveConfig) -> None:
    """Say what is deleted, and delete it unless the command is dry.

    Raises ValueError where the run does not exist, and where a command uses it.
    """
    runs = ROOT / config.runtime.runs
    if config.unused:
        _remove_unused(config, runs)
        return
    directory = next((path for path in (runs / config.run, ROOT / config.run) if path.exists()), runs / config.run)

    def chosen(inventory: Inventory) -> list[Path]:
        return _chosen(directory, config.run, runs, inventory)

    def begin(removal: Removal) -> bool:
        say(_described(removal, runs, dry=config.dry))
        return not config.dry

    left = remove_runs(ROOT / config.runtime.artifacts, runs, chosen, begin)
    if not config.dry and (directory / SWEEP).exists():
        left = _remove_sweep(directory)
    if left:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        say(f"left, because no run wrote them: {', '.join(map(str, left[:3]))}{more}")


def _remove_unused(config: RemoveConfig, runs: Path) -> None:
    artifacts = ROOT / config.runtime.artifacts

    def begin(removal: Removal) -> bool:
        number = len(removal.artifacts)
        beginning = "would delete" if config.dry else "deleting"
        say(f"{beginning} {number} artifacts that no run uses: {shown_bytes(removal.bytes)}")
        for stage, names in _by_stage(removal.artifacts).items():
            size = size_of(path for name in names for path in artifacts.glob(f"{name}*") if path.is_dir())
            say(f"  {len(names)} {stage}: {shown_bytes(size)}")
        if removal.num_kept:
            say(f"  {removal.num_kept} artifacts stay, because other commands use them now")
        return not config.dry

    remove_unused(artifacts, runs, begin)


def _by_stage(artifacts: Sequence[str]) -> dict[str, list[str]]:
    by_stage: dict[str, list[str]] = {}
    for artifact in artifacts:
        by_stage.setdefault(artifact.partition("/")[0], []).append(artifact)
    return by_stage


def _chosen(directory: Path, name: str, runs: Path, inventory: Inventory) -> list[Path]:
    """Return the run of this directory, and the points of the sweep there."""
    of_sweep = (directory / SWEEP).exists()
    if of_sweep and (directory / STATE / LOCK).exists() and is_locked(directory / STATE / LOCK):
        raise ValueError(f"a sweep is at work in {directory}; stop it first, or wait for its end")
    chosen = [run for run in inventory.uses if run == directory or (of_sweep and run.parent == directory)]
    if not chosen and not of_sweep:
        names = [shown_name(run, runs) for run in inventory.uses]
        raise ValueError(f"NAME={name}: there is no such run or sweep in {runs}{suggestion(name, names)}")
    return chosen


def _described(removal: Removal, runs: Path, *, dry: bool) -> str:
    names = ", ".join(shown_name(run, runs) for run in removal.runs)
    stages = _by_stage(removal.artifacts)
    lines = [f"{'would delete' if dry else 'deleting'} {names or 'the sweep'}: {shown_bytes(removal.bytes)}"]
    if removal.artifacts:
        counts = ", ".join(f"{len(of_stage)} {stage}" for stage, of_stage in stages.items())
        lines.append(f"  {len(removal.artifacts)} artifacts that no other run uses: {counts}")
    if removal.num_kept:
        lines.append(f"  {removal.num_kept} artifacts stay, because other runs use them")
    return "\n".join(lines)


def _remove_sweep(directory: Path) -> list[Path]:
    """Remove what the sweep itself wrote but its page, and return the files that stay. Its name is free again."""
    logs = [path.with_suffix(".log").name for path in (directory / STATE).glob("*.json")]
    files = [*(directory / STATE).iterdir(), *directory.glob(".*.lock")]
    return remove_results(directory, [SWEEP, PAGE_RECORD, *logs, *(str(path.relative_to(directory)) for path in files)])
