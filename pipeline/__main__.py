"""`python -m pipeline <command> key=value …`: the command line. Nothing heavy is imported before it is needed."""

import sys
from collections.abc import Sequence

from pipeline.commands.table import examples, find_command, summaries

USAGE = f"""usage: python -m pipeline <command> [SETTING=value ...] [key=value ...]

commands, each with its keys in configs/ and on the page that is named:
{summaries("")}

settings (`make <command> SETTING=value ARGS="key=value ..."` takes the same):
{examples()}

keys (Hydra overrides; `recipes=` and group choices first decide the defaults, then single keys):
  recipes=demo|smoke|...          a complete experiment in recipes/
  name=mine                       the run's directory below runs/
  pairs=[de-en,tr-en]             language pairs, source-target; src:tgt where a hyphen is ambiguous; all
  corpus=path/to/dir|sample|...   files named by pair, or a corpus of configs/corpus: data/README.md
  model.moe.num_experts=16        any key that `config` prints
  runtime.processes=2             processes of one device each; runtime keys never change a result"""


def main(arguments: Sequence[str]) -> int:
    """Run a command. Returns 2 for a wrong command line, else the exit code of `pipeline.ending.run_to_end`."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print("\n".join([summaries("make "), examples()]) if arguments[1:] == ["make"] else USAGE)
        return 0 if arguments else 2
    try:
        command = find_command(arguments[0])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    from eval.terminal import log_to_terminal
    from pipeline.ending import handle_signals, run_to_end

    log_to_terminal()
    handle_signals(saves=command.saves)
    return run_to_end(lambda: command(arguments[1:]), saves=command.saves)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
