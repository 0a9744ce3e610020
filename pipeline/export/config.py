"""Configuration of `make export`; free of torch so that it loads fast."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipeline.config import compose_tree
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """The settings of configs/export.yaml. Paths are absolute or relative to the root of the repository.

    pairs: directions whose dense model is exported, out of a run with gates that choose by task; none exports the
        whole model.
    target: language that the exported tokenizer asks for unless told otherwise; by default the first of the run's.
    decode: settings that differ from the run's own, such as average.
    """

    run: str
    pairs: list[str]
    out: str
    format: Literal["huggingface", "ctranslate2", "peft"]
    target: str
    decode: dict[str, Any]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        remedies = {"NAME": "the name of a finished run, a directory below runs/", "OUT": "the directory to make"}
        for (name, remedy), value in zip(remedies.items(), (self.run, self.out), strict=True):
            if not value:
                raise ValueError(f"{name} is empty; give {remedy}")


def load_export(overrides: Sequence[str]) -> ExportConfig:
    """Return the configuration of `make export`. Raises ValueError with what to change."""
    return build(ExportConfig, compose_tree("export", overrides))
