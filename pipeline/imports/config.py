"""Configuration of `make import`; free of torch so that it loads fast."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config import compose_tree
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build


@dataclass(frozen=True, kw_only=True)
class ImportConfig:
    """The settings of configs/import.yaml.

    source: directory of the checkpoint, or its name on the Hugging Face hub, such as facebook/nllb-200-distilled-600M.
    name: of the run that it becomes, a directory below runs/.
    pairs: the directions that the run translates.
    """

    source: str
    name: str
    pairs: list[str]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("FROM is empty; give the directory of a checkpoint, or its name on the Hugging Face hub")
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ValueError(f"NAME={self.name!r} must be a plain directory name, of the run to make")


def load_import(overrides: Sequence[str]) -> ImportConfig:
    """Return the configuration of `make import`. Raises ValueError with what to change."""
    return build(ImportConfig, compose_tree("import", overrides))
