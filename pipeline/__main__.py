"""`python -m pipeline <command> key=value …` or `babelshard …`: the command line.

Nothing heavy is imported before it is needed.
"""

import signal
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from pipeline.commands.table import Command, examples, find_command, summaries
from pipeline.output import ReaderGone, say

HELP = ("-h", "--help")
HINT = "  any of these:\n    ARGS=--help prints its keys with types, defaults and meanings"
USAGE = f"""usage: python -m pipeline <command> [SETTING=value ...] [key=value ...]
       python -m pipeline <command> --help      the keys of a command, with types, defaults and meanings
       python -m pipeline --version
(`babelshard` is the same as `python -m pipeline`)

commands, each with its keys in configs/ and on the page that is named:
{summaries("")}

settings (`make <command> SETTING=value ARGS="key=value ..."` takes the same):
{examples()}

keys (Hydra overrides; a recipe wins over the defaults, a group chosen here over the recipe, a single key over all):
  recipes=demo|smoke|...          a complete experiment in recipes/
  name=mine                       the run's directory below runs/
  pairs=[de-en,tr-en]             language pairs, source-target; src:tgt where a hyphen is ambiguous; all
  corpus=path/to/dir|sample|...   files named by pair, or a corpus of configs/corpus: data/README.md
  model.moe.num_experts=16        any key that `config` prints
  runtime.processes=2             processes of one device each; they never change a result"""


def main(arguments: Sequence[str]) -> int:
    """Run a command. Returns 2 for a wrong command line, else the exit code of `pipeline.ending.run_to_end`."""
    if arguments[:1] == ["help"] and arguments[1:] not in ([], ["make"]):
        arguments = [*arguments[1:], HELP[1]]  # `help train` is `train --help`
    if not arguments or arguments[0] in (*HELP, "help"):
        text = "\n".join([summaries("make "), examples(), HINT]) if arguments[1:] == ["make"] else USAGE
        return _print(text) or (0 if arguments else 2)
    if arguments[0] in ("-V", "--version"):
        print(f"babelshard {version()}")
        return 0
    try:
        command = find_command(arguments[0])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from eval.terminal import log_to_terminal
    from pipeline.ending import handle_signals, run_to_end

    log_to_terminal()
    handle_signals(saves=command.saves)
    if not set(HELP).isdisjoint(arguments[1:]):
        return run_to_end(lambda: _show_help(command, arguments[1:]), saves=False)
    return run_to_end(lambda: command(arguments[1:]), saves=command.saves)


def version() -> str:
    """Return the version of this checkout."""
    text = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def babelshard() -> int:
    """Run the command line of this process: the script `babelshard`."""
    return main(sys.argv[1:])


def _print(text: str) -> int:
    """Print a text and return the exit code. Needs no package, because `make help` prints one before `make setup`."""
    try:
        say(text)
    except ReaderGone:
        return 128 + signal.SIGPIPE
    return 0


def _show_help(command: Command, words: Sequence[str]) -> None:
    from pipeline.commands.help import command_help

    say(command_help(command, [word for word in words if word not in HELP]))


if __name__ == "__main__":
    sys.exit(babelshard())
