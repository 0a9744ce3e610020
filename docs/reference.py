"""Write the generated parts of the reference: `python -m docs.reference`.

A generated part is a block `<!-- reference: NAME -->` … `<!-- end -->` in a page of this folder. What is known of each
key comes from `pipeline.commands.keys`. The tables of docs/sizes.md are plans and settings of recipes/sizes.
"""

import re
import subprocess
from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

from docs.size_tables import machines_table, settings_table
from pipeline.commands.keys import Key, has_file, sections, settings
from pipeline.commands.table import COMMANDS
from pipeline.config import ROOT, RunConfig, compose_tree
from pipeline.plan.workload import Device
from pipeline.verify.config import VerifyConfig

PAGES = ("config-keys.md", "commands.md", "sizes.md")
BLOCK = re.compile(r"(<!-- reference: (?P<name>[\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write every generated block again."""
    for name in PAGES:
        page = Path(__file__).with_name(name)
        page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")


def rendered(text: str) -> str:
    """Return a page with its generated blocks as they must be now."""
    blocks: dict[str, Callable[[], str]] = {
        "run": lambda: _tables(RunConfig, "", compose_tree("config", [])),
        "verify": lambda: _tables(VerifyConfig, "", {}),
        "device": lambda: _tables(Device, "device", {}),
        "commands": command_keys,
        "make": make_help,
        "machines": machines_table,
        "sizes": settings_table,
    }
    return BLOCK.sub(lambda match: f"{match[1]}\n{blocks[match['name']]()}\n\n{match[3]}", text)


def make_help() -> str:
    """Return what `make help` prints, as a block of code."""
    output = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return f"```text\n{output.stdout.rstrip()}\n```"


def command_keys() -> str:
    """Return one table for each command that has settings of its own."""
    own = [command for command in COMMANDS if has_file(command) and any(settings(command))]
    return "\n\n".join(_table(f"`configs/{command.file}.yaml`", settings(command)) for command in own)


def _tables(config: type, path: str, defaults: dict[str, Any]) -> str:
    """Return the tables of a dataclass and of the dataclasses in its fields."""
    tables = []
    for section in sections(config, path, defaults, set()):
        title = f"`{section.path}`" if section.path else "Keys without a section"
        tables.append(_table(f"{title} of kind `{section.kind}`" if section.kind else title, section.keys))
    return "\n\n".join(tables)


def _table(title: str, keys: Iterable[Key]) -> str:
    rows = [f"| `{key.key}` | {key.type} | {key.default} | {_cell(key.meaning)} |" for key in keys]
    return "\n".join([f"### {title}", "", "| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _cell(text: str) -> str:
    parts = text.replace("|", "\\|").split("`")  # every second one is code, which Markdown shows as it is
    return "`".join(
        part if code else part.replace("<", "&lt;") for part, code in zip(parts, cycle((False, True)), strict=False)
    )


if __name__ == "__main__":
    main()
