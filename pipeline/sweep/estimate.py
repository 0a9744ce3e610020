"""An estimate of the time that the points of a sweep still need, from the time that they have taken so far.

A running training continues at its own rate. A training that has not begun is estimated from its FLOPs, at the pace of
the others. The stages after it (translating, scoring) take as long as on finished points. A group of systems, such as
bilingual models, has its own estimate, and so has a run that is no point of a sweep (`pipeline.dag.steps`). All times
are in seconds, and None is unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pipeline.clock import makespan
from pipeline.dag.status import RunStatus, StageStatus, training_seconds
from pipeline.dag.steps import run_seconds_left

MAIN = "train moe"  # the training of a run's main model
MIN_RESUMED = 0.05  # share of a resumed training that tells its pace; of less, most is loading and validating
LATER = ("translate", "routing", "score", "report")  # stages that come after it
SHARED = ("bilingual ", "candidate ")  # labels of baselines, which all points share, begin with one of these


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep.

    directory: the directory of its results, runs/<sweep>/<id>.
    flops: training FLOPs of a target token times the budget in tokens; 0 without a main training.
    """

    id: str
    directory: Path
    flops: float


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A point and its status, None before it began. given_up: it failed, and nobody will try it again."""

    point: Point
    status: RunStatus | None
    given_up: bool = False

    @property
    def state(self) -> str:
        """State of the run, `waiting` before it began."""
        return self.status.state if self.status is not None else "waiting"

    @property
    def main(self) -> StageStatus | None:
        """The stage of the main training, None where an earlier command did it."""
        return next((stage for stage in self._stages if stage.title == MAIN), None)

    @property
    def trained(self) -> bool:
        """True once the main training is over, in this command or an earlier one."""
        over = (stage.title == MAIN and stage.state in ("done", "reused") for stage in self._stages)
        after = (stage.title.split(" ")[0] in LATER and not _shared(stage) for stage in self._stages)
        return any(over) or any(after)  # stages of an earlier command are not listed

    @property
    def later(self) -> list[StageStatus]:
        """The stages after the main training that are the point's own."""
        main = self.main
        after = [stage for stage in self._stages if main is None or stage.started > main.started]
        return [stage for stage in after if not _shared(stage)] if self.trained else []

    @property
    def baselines_left(self) -> float | None:
        """Seconds until the bilingual models of this command are trained; 0 while it trains none."""
        batch = self.status.batch if self.status is not None else None
        if batch is not None and batch.num_done < batch.total:
            return batch.seconds_left
        return None if any(stage.open and _shared(stage) for stage in self._stages) else 0.0

    @property
    def _stages(self) -> Sequence[StageStatus]:
        return self.status.stages if self.status is not None else ()


def pace(standings: Sequence[Standing]) -> float | None:
    """Return the seconds for one training FLOP, over all trainings that have begun."""
    measured = [cost for standing in standings if (cost := _measured(standing)) is not None]
    flops = sum(flops for _, flops in measured)
    return sum(seconds for seconds, _ in measured) / flops if flops else None


def after_training(standings: Sequence[Standing]) -> float:
    """Return the seconds for a point's own stages after training: the median of finished points, 0 before the first."""
    took = [sum(stage.seconds for stage in s.later) for s in standings if s.state == "done" and s.main is not None]
    return median(took) if took else 0.0


def left(standing: Standing, pace: float | None, after: float) -> float | None:
    """Return the seconds that one point still needs if it runs alone. after: seconds for the stages after training."""
    if standing.state == "done" or standing.given_up:
        return 0.0
    status = standing.status
    if status is not None and status.state == "running" and status.steps and not standing.point.flops:
        return run_seconds_left(status)  # a run alone, or the job of what all points share
    baselines, main = standing.baselines_left, standing.main
    if standing.trained:
        own = max(0.0, after - sum(stage.seconds for stage in standing.later))
        return None if baselines is None else own + baselines
    if main is None and not standing.point.flops:
        return baselines or None
    training = None if main is None else main.seconds_left
    if training is None and pace is not None and standing.point.flops:
        fraction = main.fraction or 0.0 if main is not None else 0.0
        training = pace * standing.point.flops * (1 - fraction)
    return None if training is None else training + after


def total(standings: Sequence[Standing], at_once: int) -> float | None:
    """Return the seconds that the sweep still needs; None while one of its points is unknown."""
    now, after = pace(standings), after_training(standings)
    running: list[float] = []
    waiting: list[float] = []
    for standing in standings:
        seconds = left(standing, now, after)
        if seconds is None:
            return None
        (running if standing.state == "running" else waiting).append(seconds)
    return makespan(running, [seconds for seconds in waiting if seconds], at_once)


def _shared(stage: StageStatus) -> bool:
    return stage.title.partition(" ")[2].startswith(SHARED)


def _measured(standing: Standing) -> tuple[float, float] | None:
    """Return the seconds and FLOPs of the part of the main training that is done; None where they are not known."""
    main, flops = standing.main, standing.point.flops
    if main is not None:
        share = (main.fraction or 0.0) - main.resumed_at
        timed = main.state not in ("reused", "lost")  # another process made it, or its end is not known
        enough = share >= MIN_RESUMED if main.resumed_at else share > 0
        return (main.seconds, share * flops) if timed and enough else None
    seconds = training_seconds(standing.point.directory) if standing.state == "done" else None
    return None if seconds is None else (seconds, flops)
