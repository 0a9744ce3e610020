"""`python -m pipeline <target> key=value …`: the command line. Nothing heavy is imported before it is needed."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.config import RunConfig
    from pipeline.status import StatusFile

from eval.terminal import log_to_terminal, printable
from pipeline.output import ReaderGone, say

USAGE = """usage: python -m pipeline <target> [key=value ...]

targets:
  train          corpus to report: fetch, clean, vocab, encode, train, translate, baselines, score, report
  sweep          many runs that differ in a few keys, at equal data and budget, and their page; its keys: docs/sweeps.md
  data           the stages before training alone, and what they did to the data as a table, a plot and a page
  baselines      the bilingual models of a run alone, with their search and translations; the run finds them done
  status         where a run or a sweep stands, and how long it will take; its keys: docs/records.md
  backtranslate  monolingual text, translated by a finished run, as a corpus; its keys: docs/backtranslation.md
  translate      lines from standard input to standard output, by a finished run; its keys: docs/translate.md
  serve          a finished run behind HTTP, with a page to try it in a browser; its keys: docs/serve.md
  export         a finished run as a model of transformers or CTranslate2; its keys: docs/export.md
  prune          the experts that pairs of a finished run use, and scores before and after; its keys: docs/pruning.md
  distill        source text, translated by a finished run, as a corpus for a student; its keys: docs/distillation.md
  plan           memory, time and cost of a recipe on devices that need not be there; its keys: docs/plan.md
  config         print the resolved configuration and stop
  verify         the same batches on 1, 2 and 4 processes against plain torch; its keys: docs/verify.md

keys (Hydra overrides; `recipes=` and group choices first decide the defaults, then single keys):
  recipes=demo|smoke|...          a complete experiment in recipes/
  name=mine                       the run's directory below runs/
  pairs=[de-en,tr-en]             language pairs, source-target; src:tgt where a hyphen is ambiguous; all
  corpus=path/to/dir|sample|...   files named by pair, or a corpus of configs/corpus: data/README.md
  model.moe.num_experts=16        any key that `config` prints
  runtime.processes=2             processes of one device each; runtime keys never change a result

`make help` lists the same as make targets."""


class Interrupted(BaseException):
    """Ctrl-C, or a scheduler's SIGTERM or SIGUSR1: each ends a run in order."""


asked: list[int] = []  # the signal that asked this process to stop
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
SAVE_NOTHING = ("translate", "serve", "status", "plan")  # targets that just end


def main(arguments: Sequence[str]) -> int:
    """Run a target; the exit code is 0, 1 for an error, 2 for a wrong command line, 130 for Ctrl-C.

    75 (EX_TEMPFAIL): stopped by SIGTERM or SIGUSR1, and the same command goes on, so a scheduler may queue it again. A
    command that saves nothing ends with 128 + the signal's number, and so it does when nobody reads what it writes."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0 if arguments else 2
    target, overrides = arguments[0], list(arguments[1:])
    targets: dict[str, Callable[[list[str]], None]] = {
        "train": train,
        "status": show_status,
        "sweep": sweep,
        "data": show_data,
        "baselines": train_baselines,
        "backtranslate": back_translate,
        "translate": translate,
        "serve": serve,
        "export": export,
        "prune": prune_experts,
        "distill": distill_run,
        "plan": plan_recipes,
        "config": show_config,
        "verify": verify_topologies,
    }
    if target not in targets:
        from pipeline.spelling import suggestion

        print(f"error: target {target} does not exist{suggestion(target, targets)}", file=sys.stderr)
        return 2
    log_to_terminal()
    for number in SIGNALS:
        signal.signal(number, _end if target in SAVE_NOTHING else _interrupt)
    if starter := os.environ.get("BABELSHARD_PARENT"):
        threading.Thread(target=_end_with, args=(int(starter),), daemon=True).start()
    return _guarded(lambda: targets[target](overrides), saves=target not in SAVE_NOTHING)


def train(overrides: list[str]) -> None:
    from pipeline.config import load_config
    from pipeline.stages import train_run

    config = load_config(overrides)
    with _recorded(config) as status:
        train_run(config, status)


def show_status(overrides: list[str]) -> None:
    from pipeline.sweep.show import load_show, show

    show(load_show(overrides))


def sweep(overrides: list[str]) -> None:
    from pipeline.sweep.command import run_sweep
    from pipeline.sweep.config import load_sweep

    run_sweep(load_sweep(overrides))


def show_data(overrides: list[str]) -> None:
    from eval.records.funnel import load_funnels, text_table
    from pipeline.config import load_config
    from pipeline.stages import data_run

    config = load_config(overrides)
    with _recorded(config) as status:
        directory = data_run(config, status)
    say(text_table(load_funnels(directory / "data.json")))


def train_baselines(overrides: list[str]) -> None:
    from pipeline.baselines import text_table
    from pipeline.config import load_config
    from pipeline.stages import baselines_run

    config = load_config(overrides)
    with _recorded(config) as status:
        found = baselines_run(config, status)
    say(text_table(*found))


def back_translate(overrides: list[str]) -> None:
    from pipeline.backtranslation import back_translate, load_backtranslation

    back_translate(load_backtranslation(overrides))


def translate(overrides: list[str]) -> None:
    from pipeline.translate import load_translate, translate

    translate(load_translate(overrides))


def serve(overrides: list[str]) -> None:
    from pipeline.serve.config import load_serve

    config = load_serve(overrides)
    from pipeline.serve.server import serve

    serve(config)


def export(overrides: list[str]) -> None:
    from pipeline.export.command import export_run
    from pipeline.export.config import load_export

    export_run(load_export(overrides))


def prune_experts(overrides: list[str]) -> None:
    from pipeline.pruning import load_pruning, prune

    prune(load_pruning(overrides))


def distill_run(overrides: list[str]) -> None:
    from pipeline.distillation import distill, load_distillation

    distill(load_distillation(overrides))


def plan_recipes(overrides: list[str]) -> None:
    from pipeline.plan.command import plan
    from pipeline.plan.config import load_plan

    plan(load_plan(overrides))


def show_config(overrides: list[str]) -> None:
    import yaml

    from pipeline.config import load_config

    say(yaml.safe_dump(load_config(overrides).to_json(), sort_keys=False, allow_unicode=True).rstrip())


def verify_topologies(arguments: list[str]) -> None:
    from pipeline.verify.command import parse, verify

    verify(parse(arguments))


def _recorded(config: "RunConfig") -> AbstractContextManager["StatusFile"]:
    """Where the run stands is in its directory as long as the command runs, and how it ended."""
    from pipeline.config import ROOT
    from pipeline.status import recorded

    return recorded(ROOT / config.runtime.runs / config.name, asked)


def _guarded(action: Callable[[], None], *, saves: bool = True) -> int:
    """Run, and turn every way of ending into an exit code and one clear line. saves: whether the same command
    goes on from what it has done."""
    from pipeline.jobs.launch import STOPPED, JobFailed, stop_all, unsaved
    from pipeline.stage import Stopped
    from pipeline.tasks import TaskFailed

    try:
        action()
    except ReaderGone:
        return 128 + signal.SIGPIPE
    except (Interrupted, Stopped):
        code = 0
    except (ValueError, JobFailed, TaskFailed) as error:
        code = _failed(str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        kept = "published artifacts are untouched and the partial work is kept: " if saves else ""
        remedy = "make room or fix permissions, then run the same command again"
        code = _failed(f"{error.strerror or error}{where}; {kept}{remedy}")
    else:
        return 0
    stop_all()
    if asked and not saves:
        return 128 + asked[0]
    # asked: whatever a signal was turned into on its way here (SentencePiece makes it an error of its own)
    if unsaved:
        print(f"error: {unsaved[0]}; what was under way is not saved; what was saved before is kept", file=sys.stderr)
        return 1
    if asked or not code:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 128 + signal.SIGINT if asked[:1] == [signal.SIGINT] else STOPPED
    return code


def _failed(message: str) -> int:
    if not asked:
        print(f"error: {printable(message)}", file=sys.stderr)
    return 1


def _interrupt(number: int, _frame: Any) -> None:
    """The first signal ends the run in order; later ones have nothing to add."""
    _ask(number)
    print("stopping: saving what is under way …", file=sys.stderr, flush=True)
    raise Interrupted


def _end(number: int, _frame: Any) -> None:
    """For a command that saves nothing."""
    _ask(number)
    raise Interrupted


def _end_with(starter: int) -> None:
    """End in order once the process that started this one, a job of a sweep, is gone."""
    while os.getppid() == starter:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _ask(number: int) -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    asked.append(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
