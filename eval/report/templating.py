"""The templates of the pages."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape


def environment() -> Environment:
    """Return the environment of the templates in this folder. It escapes every text that a template inserts.

    The filter `breakable` allows a line break after each underscore of a name.
    """
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["zip"] = zip
    templates.filters["breakable"] = lambda name: Markup("_<wbr>").join(escape(name).split("_"))
    return templates
