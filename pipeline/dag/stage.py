"""A stage: a function that fills one directory, and the key by which its result is found again."""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.checked_json import CHECKSUM
from pipeline.dag.artifact import Artifact
from pipeline.engine.checkpoint.names import RESUME_SHARDS

# In a checkpoint's state. The checksum covers the others, and the resume shards are no part of the content.
MODEL_CLOCKS = ("train_seconds", "matmul_peak", RESUME_SHARDS, CHECKSUM)
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
    clocks: names in its JSON files whose values are no part of the content, such as those that a clock decides.
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
