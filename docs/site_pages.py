"""Hooks of mkdocs: pages outside docs/ join the site, and links between files of the repository become links of it.

The same Markdown serves the repository and the site. In the repository links are relative to the file. On the site a
link to another page leads there, and a link to a file that is no page (code, configuration) becomes its text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {  # files of the repository and their names on the site
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "data/README.md": "corpus-files.md",
    "data/freesoft38/README.md": "freesoft38.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside docs/."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page. Raises PluginError for one that leads nowhere."""
    names = {name: source for source, name in OUTSIDE.items()}
    source = names.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [_LINK.sub(lambda match: _link(match, source), part) for part in parts[::2]]
    return "".join(parts)


def _link(match: re.Match[str], source: str) -> str:
    mark, text, link = match.groups()
    path, hash_mark, anchor = link.partition("#")
    if not path or ":" in path:
        return match[0]
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if target in OUTSIDE:
        return f"{mark}[{text}]({OUTSIDE[target]}{hash_mark}{anchor})"
    if target.startswith("docs/") and target.endswith((".md", ".png")):
        return f"{mark}[{text}]({target.removeprefix('docs/')}{hash_mark}{anchor})"
    if not (ROOT / target).exists():
        raise PluginError(f"{source}: the link {link} leads nowhere")
    return text
