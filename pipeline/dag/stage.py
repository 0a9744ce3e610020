"""A stage: a function that fills one directory, and the key by which its result is found again."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.checked_json import CHECKSUM
from pipeline.dag.artifact import Artifact

MODEL_CLOCKS = ("train_seconds", "matmul_peak", CHECKSUM)  # in a checkpoint's state; the checksum covers the others
RECORD_CLOCKS = (  # in run.json
    *("created", "train_seconds", "wall_seconds", "device_hours", "tokens_per_second", "mfu", "matmul_peak"),
)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A function that fills one directory, and everything that decides the result.

    version: raised when the code gives another output.
    config: the JSON-serialisable slice of the configuration that can change the output.
    inputs: artifacts by the name under which the stage reads them.
    run: called with the partial directory.
    label: tells the stages of one name apart in messages; it does not affect the key.
    resumable: `run` continues from the files of an interrupted attempt; without it, the directory is emptied before.
    clocks: names in its JSON files whose values a clock decides, which are no part of the content.
    """

    name: str
    version: int
    config: Any
    inputs: Mapping[str, Artifact] = field(default_factory=dict)
    run: Callable[[Path], None]
    label: str = ""
    resumable: bool = False
    clocks: Collection[str] = ()

    def key(self) -> str:
        """Return the first 16 hexadecimal digits of the hash of everything that decides the output."""
        decisive = {
            "name": self.name,
            "version": self.version,
            "config": self.config,
            "inputs": {name: artifact.content for name, artifact in sorted(self.inputs.items())},
        }
        text = json.dumps(decisive, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
