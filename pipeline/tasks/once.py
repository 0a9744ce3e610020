"""A task that is not done twice."""

import glob
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.artifact import sync, sync_tree
from pipeline.stage import remove_tree

RESULT = "result.json"


def run_once(out: Path, work: Callable[[Path], Any]) -> Any:
    """Fill the directory `out` by `work`, unless that has been done; what `work` returned, then or now.

    work: gets an empty directory beside `out`, which becomes `out` in one step, and returns what JSON can hold. The
    name of `out` must say all that decides its content within the stage: which rows, say, and not which number.
    """
    if not (out / RESULT).exists():
        for abandoned in out.parent.glob(f"{glob.escape(out.name)}.*.partial"):
            remove_tree(abandoned)
        # a name of its own: an attempt that was given up for lost may still be writing
        partial = out.with_name(f"{out.name}.{secrets.token_hex(4)}.partial")
        partial.mkdir(parents=True)
        result = json.dumps(work(partial), ensure_ascii=False)
        (partial / RESULT).write_text(result, encoding="utf-8")
        sync_tree(partial)
        try:
            partial.rename(out)
        except OSError:
            if not (out / RESULT).exists():  # else the other was faster
                raise
            remove_tree(partial)
        sync(out.parent)
    return json.loads((out / RESULT).read_text(encoding="utf-8"))
