"""The life of a peer's process: it does one action of its job, and ends with the process that started it."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.products import use_our_libraries


def run_peer(actions: Mapping[str, Callable[[dict[str, Any]], None]]) -> None:
    """Do the action that the command line names (`job.json train`), with the content of the job file.

    Without the process that `environment` names as its parent, this one ends at once, whatever it is doing.
    """
    if parent := int(os.environ.get("BABELSHARD_PARENT", "0")):
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    use_our_libraries()
    actions[sys.argv[2]](json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)  # nobody waits for what it would save
