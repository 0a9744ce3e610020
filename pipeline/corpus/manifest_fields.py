"""The fields of manifest.yaml, as they are written there; data/README.md explains them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class FileFields:
    """An item of `files` in manifest.yaml. columns, where: `pipeline.corpus.manifest` reads them."""

    split: str
    format: str
    path: str | list[str] = ""
    source: str = ""
    target: str = ""
    pair: str = ""
    columns: Any = None
    where: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    sha256: str | list[str] = field(default_factory=list)
    rows: int | None = None
    streaming: bool = False
    tag: str = ""
    licence: str = ""
    citation: str = ""
    archive: str = ""
    dataset: str = ""
    config: str = ""
    part: str = ""
    revision: str = ""


@dataclass(frozen=True, kw_only=True)
class ManifestFields:
    """The fields of manifest.yaml as they are written."""

    name: str
    files: list[FileFields]
    title: str = ""
    licence: str = ""
    citation: str = ""
    default_target: str = ""
    codes: dict[str, str] = field(default_factory=dict)
