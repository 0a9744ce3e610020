"""`make train`: the whole job, from the corpus to the report."""

import shlex
import sys
import time
from pathlib import Path

import yaml

from eval.number_format import duration
from eval.records.results import load_results
from eval.report.score_table import text_table
from eval.report.summary import headline, summarise
from pipeline.commands.opening import announce, describe_model, describe_place, describe_time, seconds_here
from pipeline.commands.origin import find_origin
from pipeline.config import ROOT, RunConfig
from pipeline.dag.replacement import check_replacement
from pipeline.dag.run import shown, train_run
from pipeline.dag.steps import train_steps
from pipeline.dag.terminal import watched
from pipeline.jobs.default_precision import describe_precision
from pipeline.live import wrapped
from pipeline.output import say


def train(config: RunConfig) -> None:
    """Run every stage, show their progress, and end with the result and the next commands."""
    began = time.monotonic()
    check_replacement(ROOT / config.runtime.runs / config.name, config)
    origin = find_origin(config)
    seconds = seconds_here(config)
    precision = describe_precision(config.runtime.device, config.train.precision)
    announce(config, describe_model(config), describe_place(config.runtime), precision, describe_time(config, seconds))
    with watched(config, train_steps(config)) as status:
        status.expect(training=seconds)
        directory = train_run(config, status, origin)
    say(result(config, directory, time.monotonic() - began))


def result(config: RunConfig, directory: Path, seconds: float) -> str:
    """Return the result of a finished run as text, with the next commands. seconds: that the command took."""
    (run,) = load_results([("", directory)])
    summaries = summarise(run)
    report, words = shown(directory / "report.html"), finished_run_words(config)
    return "\n".join(
        [
            *("", wrapped(headline(summaries), sys.stdout), "", text_table(summaries), ""),
            f"{duration(seconds)}; report: {report}",
            *("", "next:"),
            f"  python3 -m webbrowser {shlex.quote(report)}",
            f"  make -s translate {words} PAIR={summaries[0].pair}  # type text",
            f"  make serve {words}  # the same in a browser",
        ]
    )


def finished_run_words(config: RunConfig) -> str:
    """Return the words of a `make` command on this run, with its directories if they are not the default ones."""
    defaults = yaml.safe_load((ROOT / "configs" / "runtime" / "cpu.yaml").read_text(encoding="utf-8"))
    places = {name: getattr(config.runtime, name) for name in ("artifacts", "runs")}
    keys = [shlex.quote(f"runtime.{name}={place}") for name, place in places.items() if place != defaults[name]]
    return f"NAME={shlex.quote(config.name)}" + (f" ARGS={shlex.quote(' '.join(keys))}" if keys else "")
