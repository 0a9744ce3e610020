"""Settings of scoring."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eval.records.scores import METRICS
from eval.score.by_command import check_command, file_digests
from pipeline.spelling import suggestion

OWN = "own"  # the test sets of the run's corpus
CHALLENGE = "challenge"  # the challenge set of these; `challenge:CORPUS` is that of further test sets


@dataclass(frozen=True, kw_only=True)
class CommandsConfig:
    """Commands that compute metrics which sacreBLEU does not have (docs/scoring.md). They run without a shell.

    comet: the command of COMET.
    cometkiwi: the command of CometKiwi, which needs no reference.
    metricx: the command of MetricX.
    """

    comet: str = ""
    cometkiwi: str = ""
    metricx: str = ""

    def by_metric(self) -> dict[str, str]:
        """Return the commands that there are, by metric."""
        return {metric: command for metric, command in asdict(self).items() if command}


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """The scoring of test sets.

    metrics: names in eval.records.scores.METRICS; `bleu` is needed, because the report is about it.
    commands: commands of the metrics comet, cometkiwi and metricx, for those of them that are among the metrics.
    resamples: samples of the bootstrap for intervals and significance.
    test_sets: `own`, and further ones that the finished models translate: presets of configs/corpus, `preset:path` with
        the place of its files, or directories. `challenge` is the challenge set of `own`, `challenge:NAME` that of a
        further one (docs/scoring.md).
    """

    metrics: list[str]
    resamples: int
    commands: CommandsConfig = field(default_factory=CommandsConfig)
    test_sets: list[str] = field(default_factory=lambda: [OWN])

    def __post_init__(self) -> None:
        for metric in self.metrics:
            if metric not in METRICS:
                raise ValueError(f"score.metrics: {metric!r} does not exist{suggestion(metric, METRICS)}")
            if METRICS[metric].sentence_piece:
                from eval.score.metrics import scorer_for  # late, because it loads sacreBLEU

                scorer_for(metric, "en")  # raises before training where its model is missing
        check_commands(self.metrics, self.commands, "score.")
        if len(set(self.metrics)) < len(self.metrics) or "bleu" not in self.metrics:
            raise ValueError(f"score.metrics={self.metrics} must name bleu, which the report shows, and nothing twice")
        if self.resamples < 100:
            raise ValueError(f"score.resamples={self.resamples}: an interval needs at least 100; 1000 is usual")
        if OWN not in self.test_sets or len(set(self.test_sets)) < len(self.test_sets):
            raise ValueError(
                f"score.test_sets={self.test_sets} must have {OWN}, the test sets of the corpus, and nothing twice"
            )

    def programs_key(self) -> dict[str, Any]:
        """Return the part of a stage's settings that changes with the programs of the commands; empty without any."""
        digests = {metric: file_digests(command) for metric, command in self.commands.by_metric().items()}
        return {"programs": digests} if any(digests.values()) else {}


def check_commands(metrics: Sequence[str], commands: CommandsConfig, section: str) -> None:
    """Raise ValueError where one of the metrics has no command, or a command no metric, or its program is not there.

    section: where the two settings are, such as `score.`, for the message.
    """
    for metric, command in asdict(commands).items():
        if (metric in metrics) != bool(command):
            raise ValueError(
                f"{section}metrics={list(metrics)} and {section}commands.{metric}={command!r}: such a metric needs its "
                "name among the metrics, and its command; give both, or neither (docs/scoring.md)"
            )
        if command:
            check_command(f"{section}commands.{metric}", command)
