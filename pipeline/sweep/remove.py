"""`make remove`: delete a run or a sweep, and the artifacts that no other run uses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import ROOT, compose_tree
from pipeline.dag.inventory import Inventory
from pipeline.dag.removal import Removal, remove_runs
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
    dry: bool
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError("NAME is empty; give the name of the run or sweep to delete (`make runs` lists them)")


def load_remove(overrides: Sequence[str]) -> RemoveConfig:
    """Return the configuration of `make remove`. Raises ValueError with what to change."""
    return build(RemoveConfig, compose_tree("remove", overrides))


def remove(config: RemoveConfig) -> None:
    """Say what is deleted, and delete it unless the command is dry.

    Raises ValueError where the run does not exist, and where a command uses it.
    """
    runs = ROOT / config.runtime.runs
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
    stages = Counter(artifact.partition("/")[0] for artifact in removal.artifacts)
    lines = [f"{'would delete' if dry else 'deleting'} {names or 'the sweep'}: {shown_bytes(removal.bytes)}"]
    if removal.artifacts:
        counts = ", ".join(f"{number} {stage}" for stage, number in stages.items())
        lines.append(f"  {len(removal.artifacts)} artifacts that no other run uses: {counts}")
    if removal.num_kept:
        lines.append(f"  {removal.num_kept} artifacts stay, because other runs use them")
    return "\n".join(lines)


def _remove_sweep(directory: Path) -> list[Path]:
    """Remove what the sweep itself wrote but its page, and return the files that stay."""
    logs = [path.with_suffix(".log").name for path in (directory / STATE).glob("*.json")]
    files = [*(directory / STATE).iterdir(), *directory.glob(".*.lock")]
    return remove_results(directory, [SWEEP, *logs, *(str(path.relative_to(directory)) for path in files)])
