"""The check of the variables that a user typed behind `make`; the Makefile runs it before any target."""

import sys
from collections.abc import Collection, Sequence

from pipeline.commands.table import COMMANDS, unread


def check(goals: Sequence[str], typed: Sequence[str], of_targets: Collection[str]) -> None:
    """Raise ValueError for the first variable that no goal reads.

    goals: targets of this call of make, in their order.
    of_targets: variables that those of them read that are no commands.
    """
    commands = [command for command in COMMANDS if command.name in goals]
    settings = [*(name for command in commands for name in command.settings), *of_targets]
    for name in typed:
        if name not in settings and not (name == "ARGS" and commands):
            raise ValueError(unread(name, f"make {' '.join(goals)}", settings))


if __name__ == "__main__":
    try:
        check(*(words.split() for words in sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")
