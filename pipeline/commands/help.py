"""`python -m pipeline <command> --help`: the words and the keys of one command."""

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import takewhile
from typing import get_type_hints

from pipeline.commands.keys import Key, has_file, sections, settings
from pipeline.commands.table import Command, function
from pipeline.config import ROOT, RunConfig, compose_tree

WIDTH = range(60, 121)  # columns of the text, as far as the terminal has them
_PARTS = ("decode", "runtime")  # keys of a run that other commands take too


def command_help(command: Command, words: Sequence[str]) -> str:
    """Return what a command does, its words with the keys that they stand for, and its keys with their defaults.

    words: the rest of the command line; its recipe and groups decide the defaults of a run.
    """
    width = min(max(shutil.get_terminal_size().columns, WIDTH[0]), WIDTH[-1])
    return "\n\n".join("\n".join(part) for part in _parts(command, words, width))


def _parts(command: Command, words: Sequence[str], width: int) -> Iterator[Iterable[str]]:
    yield [
        f"usage: python -m pipeline {command.name} [SETTING=value ...] [key=value ...]",
        f'       make {command.name} [SETTING=value ...] [ARGS="key=value ..."]',
    ]
    yield _wrapped(f"{command.name}: {command.help}", width)
    if command.settings:
        longest = max(map(len, command.settings))
        lines = [f"  {name:<{longest}}  {form.partition('=')[0]}" for name, form in command.settings.items()]
        yield ["settings, and the key that each one stands for:", *lines]
        yield [f"example:\n  {command.example}"]
    if has_file(command):
        yield from _own_keys(command, width)
        return
    config = get_type_hints(function(command.load))["return"]
    # A directory in place of a corpus is known to `load_config` alone, and decides no default.
    overrides = [override for override in command.overrides(words) if not override.startswith("corpus=")]
    defaults = compose_tree("config", overrides) if config is RunConfig else {}
    title = "keys, with their defaults" + (f" under recipe {defaults['recipe']}:" if defaults else ":")
    for section in sections(config, "", defaults, set()):
        kind = f" of kind {section.kind}" if section.kind else ""
        yield [
            f"{section.path}{kind}:" if section.path else title,
            *(line for key in section.keys for line in _lines(key, width)),
        ]


def _own_keys(command: Command, width: int) -> Iterator[Iterable[str]]:
    """Yield the keys in the command's file, and which others it takes."""
    own = list(settings(command))
    if own:
        yield ["keys, with their defaults:", *(line for key in own for line in _lines(key, width))]
    text = (ROOT / "configs" / f"{command.file}.yaml").read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines()))
    if further := comment.partition("). ")[2]:  # after the sentence on what the command does
        yield _wrapped(further.replace("`", ""), width)
    names = {field.name for field in fields(get_type_hints(function(command.load))["return"])}
    parts = [part for part in _PARTS if part in names and not any(key.key.startswith(f"{part}.") for key in own)]
    if parts:
        yield [f"and {' and '.join(f'{part}.*' for part in parts)}, as `python -m pipeline train --help` has them"]


def _lines(key: Key, width: int) -> list[str]:
    """Return a line `key=default  (type)` and the meaning below it."""
    kind, default = key.type.replace("`", ""), "" if key.default == "empty" else key.default.strip("`")
    plain = key.default.startswith("`") or not default
    head = f"{key.key}={default}  ({kind})" if plain else f"{key.key}  ({kind}, {default})"
    return [f"  {head}", *_wrapped(key.meaning, width, indent=6)]


def _wrapped(text: str, width: int, *, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent)
