"""How long the points of a sweep will still take, from how long they have taken so far.

A training that runs goes on at its own rate. One that has not begun takes its FLOPs at the pace of those that have; the
stages after it (translating, scoring) take what they took on finished points. What makes many systems says itself how
long they take. Seconds throughout; None is unknown.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pipeline.status import RunStatus, StageStatus, training_seconds

MAIN = "train moe"  # the training of a run's main model
LATER = ("translate", "routing", "score", "report")  # stages that come after it
SHARED = ("bilingual ", "candidate ")  # what labels of baselines begin with, which points have in common


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run of a sweep. directory: where its results lie, runs/<sweep>/<id>. flops: of its main training, training
    FLOPs of a target token times the budget in tokens; 0 where there is none, as for what points share."""

    id: str
    directory: Path
    flops: float


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A point and where it stands; None before it is begun. given_up: it failed, and nobody will try it again."""

    point: Point
    status: RunStatus | None
    given_up: bool = False

    @property
    def state(self) -> str:
        return self.status.state if self.status is not None else "waiting"

    @property
    def main(self) -> StageStatus | None:
        """The stage of the main training, where this command did it."""
        return next((stage for stage in self._stages if stage.title == MAIN), None)

    @property
    def trained(self) -> bool:
        """Whether the main training is over, by this command or an earlier one."""
        over = (stage.title == MAIN and stage.state in ("done", "reused") for stage in self._stages)
        after = (stage.title.split(" ")[0] in LATER and not _shared(stage) for stage in self._stages)
        return any(over) or any(after)  # what an earlier command made is not among the stages

    @property
    def later(self) -> list[StageStatus]:
        """The stages after the main training that are the point's own."""
        main = self.main
        after = [stage for stage in self._stages if main is None or stage.started > main.started]
        return [stage for stage in after if not _shared(stage)] if self.trained else []

    @property
    def baselines_left(self) -> float | None:
        """Of the models that this command trains beside the main one: 0 while there are none."""
        batch = self.status.batch if self.status is not None else None
        if batch is not None and batch.done < batch.total:
            return batch.seconds_left
        return None if any(stage.open and _shared(stage) for stage in self._stages) else 0.0

    @property
    def _stages(self) -> Sequence[StageStatus]:
        return self.status.stages if self.status is not None else ()


def pace(standings: Sequence[Standing]) -> float | None:
    """Seconds of a training FLOP, over all trainings that have run or do."""
    measured = [found for standing in standings if (found := _measured(standing)) is not None]
    flops = sum(done for _, done in measured)
    return sum(seconds for seconds, _ in measured) / flops if flops else None


def after_training(standings: Sequence[Standing]) -> float:
    """What a point's own stages after its training take: the median of finished points, 0 before there is one."""
    took = [sum(stage.seconds for stage in s.later) for s in standings if s.state == "done" and s.main is not None]
    return median(took) if took else 0.0


def left(standing: Standing, pace: float | None, after: float) -> float | None:
    """Of one point that runs alone."""
    if standing.state == "done" or standing.given_up:
        return 0.0
    baselines, main = standing.baselines_left, standing.main
    if standing.trained:
        own = max(0.0, after - sum(stage.seconds for stage in standing.later))
        return None if baselines is None else own + baselines
    if main is None and not standing.point.flops:
        return baselines or None
    rest = None if main is None else remaining(main)
    if rest is None and pace is not None and standing.point.flops:
        done = main.fraction or 0.0 if main is not None else 0.0
        rest = pace * standing.point.flops * (1 - done)
    return None if rest is None else rest + after


def remaining(stage: StageStatus) -> float | None:
    """Of one stage that runs and says how far it is."""
    if stage.state != "running" or stage.fraction is None or stage.fraction <= stage.resumed_at:
        return None
    return stage.seconds * (1 - stage.fraction) / (stage.fraction - stage.resumed_at)


def makespan(running: Sequence[float], waiting: Sequence[float], at_once: int) -> float:
    """Until all are done, where those that wait begin in their order, each when a place is free."""
    places = [*running, *[0.0] * (at_once - len(running))]
    heapq.heapify(places)
    ends = [*running]
    for seconds in waiting:
        ends.append(heapq.heappop(places) + seconds)
        heapq.heappush(places, ends[-1])
    return max(ends, default=0.0)


def total(standings: Sequence[Standing], at_once: int) -> float | None:
    """Of the sweep; None as long as one of its points is unknown."""
    now, after = pace(standings), after_training(standings)
    each = [(standing.state == "running", left(standing, now, after)) for standing in standings]
    known = [(runs, seconds) for runs, seconds in each if seconds is not None]
    if len(known) < len(each):
        return None
    return makespan([s for runs, s in known if runs], [s for runs, s in known if not runs and s], at_once)


def _shared(stage: StageStatus) -> bool:
    return stage.title.partition(" ")[2].startswith(SHARED)


def _measured(standing: Standing) -> tuple[float, float] | None:
    """Seconds and FLOPs of the main training as far as it has come."""
    main, flops = standing.main, standing.point.flops
    if main is not None:
        done = (main.fraction or 0.0) - main.resumed_at
        timed = main.state not in ("reused", "lost")  # made by others, or ended nobody knows when
        return (main.seconds, done * flops) if timed and done > 0 else None
    seconds = training_seconds(standing.point.directory) if standing.state == "done" else None
    return None if seconds is None else (seconds, flops)
