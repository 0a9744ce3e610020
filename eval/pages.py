"""What the pages have in common: templates, and settings as lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def environment() -> Environment:
    """The templates of this package; what they are given is escaped."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["zip"] = zip
    return templates


def flatten(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as the `a.b=value` lines that the command line takes."""
    lines: list[tuple[str, str]] = []
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            lines += flatten(value, f"{prefix}{key}.")
        else:
            lines.append((f"{prefix}{key}", str(value)))
    return lines
