"""The steps of a command as its user sees them, several stages each, and the time that is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from eval.number_format import duration, percent, rough_duration
from pipeline.config import RunConfig
from pipeline.dag.status import RunStatus, StageStatus, now
from pipeline.dag.system import LEARNED

DATA_STEPS = ("fetch", "clean", "vocab", "encode", "data")
BASELINE_STEPS = (*DATA_STEPS[:-1], "baselines")
# Seconds of the demo on two cores that hardly depend on the text. To the translation its lines are added.
_LATER = {"translate": 5.0, "routing": 5.0, "score": 2.0, "report": 5.0}
_PARTS = {
    "split": "fetch",
    "held_out": "fetch",
    "scores": "fetch",
    "select": "clean",
}  # stages that belong to the step of another name
_BILINGUAL = ("bilingual", "candidate")  # first word of the labels of bilingual systems


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step. It lasts from its first stage to the first stage of the next one.

    place: its number and the number of all steps, such as `5/10`.
    stages: those that this command did itself, in the order of their start.
    seconds: time that it took, or has taken so far.
    """

    name: str
    place: str
    stages: Sequence[StageStatus]
    seconds: float

    def finished(self) -> str:
        """Return a line for a step that is over."""
        return f"[{self.place}] {self.name}: {duration(self.seconds) if self.stages else 'up to date'}"

    def ended(self) -> str:
        """Return a line for the step in which the command stopped or failed."""
        state = "failed" if any(stage.state == "failed" for stage in self.stages) else "stopped"
        step = next((f" at step {stage.step:,}" for stage in self.stages if stage.step and stage.state == state), "")
        return f"[{self.place}] {self.name}: {state}{step} after {duration(self.seconds)}"

    def running(self, status: RunStatus) -> str:
        """Return a line for a step that is under way."""
        open_stages = [stage for stage in self.stages if stage.open]
        if self.name == "baselines":
            details = _baselines(self, status, open_stages)
        elif open_stages and all(stage.state == "waiting" for stage in open_stages):
            details = "waits for another command that does the same"
        elif len(self.stages) == 1:
            details = _one(self.stages[0])
        else:
            labels = ", ".join(stage.title.partition(" ")[2] for stage in open_stages)
            num_done = len(self.stages) - len(open_stages)
            details = ", ".join(part for part in (f"{num_done} done" if num_done else "", labels) if part)
        return f"[{self.place}] {self.name}: {details or 'checking what is up to date'}"


def train_steps(config: RunConfig) -> tuple[str, ...]:
    """Return the steps of `make train`."""
    routing = ["routing"] if config.model.moe_layers() else []
    baselines = ["baselines"] if config.baselines.tiers else []
    return (*DATA_STEPS[:-1], "train", "translate", *routing, *baselines, "score", "report")


def begun_steps(status: RunStatus, at: datetime) -> list[Step]:
    """Return the steps up to the one that has begun last, and at least the first one.

    A stage that runs after a later step began belongs to that step, such as the vocabulary of a bilingual model.
    at: the time until which the last one has taken.
    """
    stages: list[list[StageStatus]] = [[] for _ in status.steps]
    last = 0
    for stage in sorted(status.stages, key=lambda stage: stage.started):
        last = max(last, _number(stage.title, status.steps))
        stages[last].append(stage)
    steps: list[Step] = []
    for number in reversed(range(last + 1)):
        began = stages[number][0].started if stages[number] else at
        place = f"{number + 1}/{len(status.steps)}"
        seconds = (at - began).total_seconds()
        steps.insert(0, Step(name=status.steps[number], place=place, stages=stages[number], seconds=seconds))
        at = began
    return steps


def run_seconds_left(status: RunStatus) -> float | None:
    """Return the seconds until the command ends; None where that is not known. Steps before training count nothing."""
    if not {"train", "baselines"} & set(status.steps):
        return None
    *_, current = begun_steps(status, now())
    todo = status.steps[status.steps.index(current.name) :]
    main = next((stage for stage in status.stages if stage.title == "train moe"), None)
    training = status.expected.get("training") if main is None or main.whole is None else main.whole
    seconds = _later_left(status, todo, current, training)
    if "train" in todo:
        left = training if main is None else main.seconds_left
        if left is None and training is not None and main is not None:
            left = max(0.0, training * (1 - main.resumed_at) - main.seconds)
        if left is None:
            return None
        seconds += left
    if "baselines" in todo:
        step_seconds = current.seconds if current.name == "baselines" else None
        left = _baselines_left(status, training, step_seconds)
        if left is None:
            return None
        seconds += left
    return seconds


def is_upper_bound(status: RunStatus) -> bool:
    """Return whether the time left counts whole budgets of bilingual models that may stop early.

    From the first finished model on, the others are taken to use as much of their budgets as the finished ones.
    """
    if not status.expected.get("capped") or not {"train", "baselines"} & set(status.steps):
        return False
    *_, current = begun_steps(status, now())
    todo = status.steps[status.steps.index(current.name) :]
    return "baselines" in todo and not _have_pace(status)


def left_in_words(status: RunStatus, text: str) -> str:
    """Return `text`, a time that is left, after the word that says how sure it is."""
    return f"{'at most' if is_upper_bound(status) else 'about'} {text}"


def run_line(status: RunStatus) -> str:
    """Return a line on the time of the whole command."""
    left = run_seconds_left(status)
    took = f"{rough_duration(status.seconds)} so far"
    if not left:
        return took
    text = left_in_words(status, rough_duration(left))
    return f"{took}, {text} left in all, until {datetime.now() + timedelta(seconds=left):%H:%M}"


def _later_left(status: RunStatus, todo: Sequence[str], current: Step, training: float | None) -> float:
    """Return the seconds of the steps after a training, but for bilingual models.

    training: seconds of the whole main training.
    """
    times = {step: seconds for step, seconds in _LATER.items() if step in todo}
    if "translate" in times:
        times["translate"] += (training or 0.0) * status.expected.get("translation", 0.0)
    if current.name in times:
        under_way = [stage.seconds_left for stage in current.stages if stage.seconds_left is not None]
        times[current.name] = under_way[0] if under_way else max(0.0, times[current.name] - current.seconds)
    return sum(times.values())


def _number(title: str, steps: Sequence[str]) -> int:
    """Return the number of the step that a stage belongs to; 0 for one that fits into any."""
    name, _, label = title.partition(" ")
    bilingual = label.partition(" ")[0] in _BILINGUAL
    step = "baselines" if bilingual and name in ("train", "translate") else _PARTS.get(name, name)
    if label.partition(" ")[0] == LEARNED:
        step = "clean"
    return steps.index(step) if step in steps else 0


def _one(stage: StageStatus) -> str:
    """Return the progress of one stage."""
    parts = []
    if stage.step is not None:
        parts += [f"step {stage.step:,}", f"loss {stage.loss:.2f}"]
    elif stage.fraction is not None:
        parts.append(percent(stage.fraction))
    if stage.seconds_left is not None:
        parts.append(f"{rough_duration(stage.seconds_left)} left")
    return ", ".join(parts or [f"{rough_duration(stage.seconds)} so far"])


def _baselines(step: Step, status: RunStatus, open_stages: Sequence[StageStatus]) -> str:
    """Return the progress of the bilingual models: of those together, then of those that are under way."""
    parts = []
    if step.stages and status.batch is not None and status.batch.num_done < status.batch.total:
        parts.append(f"{status.batch.num_done} of {status.batch.total}")
    if (left := _baselines_left(status, None, step.seconds)) is not None:
        parts.append(f"{rough_duration(left)} left")
    together = ", ".join(parts)
    models = [_model(stage) for stage in open_stages if stage.title.startswith(("train ", "translate "))]
    return "; ".join(part for part in (together, ", ".join(models)) if part)


def _model(stage: StageStatus) -> str:
    """Return the progress of one bilingual model."""
    name, _, label = stage.title.partition(" ")
    share = f" {percent(stage.fraction)}" if stage.fraction is not None else ""
    return f"{label.partition(' ')[2]}{' translated' if name == 'translate' else ''}{share}"


def _baselines_left(status: RunStatus, training: float | None, step_seconds: float | None) -> float | None:
    """Return the seconds that the bilingual models still need.

    training: seconds of the whole main training.
    step_seconds: seconds since their step began, None before.
    """
    expected = status.expected.get("baselines")
    if step_seconds is not None and status.batch is not None and _have_pace(status):
        return status.batch.seconds_left
    if training is None or expected is None:
        return None
    return max(0.0, training * expected - (step_seconds or 0.0))


def _have_pace(status: RunStatus) -> bool:
    """Return whether some of the bilingual models that are made are done, and others are not."""
    return status.batch is not None and status.batch.num_done < status.batch.total
