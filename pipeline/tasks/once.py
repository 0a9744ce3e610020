"""A task whose result is kept, so that it does not run twice."""

import glob
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.files import remove_tree, sync, sync_tree

RESULT = "result.json"


def run_once(out: Path, work: Callable[[Path], Any]) -> Any:
    """Fill the directory `out` by `work` unless an earlier call did, and return what `work` returned.

    out: its name must contain everything that decides its content within the stage, such as the rows.
    work: is called with an empty directory, which becomes `out` in one step, and returns a value that JSON can hold.
    """
    if not (out / RESULT).exists():
        for abandoned in out.parent.glob(f"{glob.escape(out.name)}.*.partial"):
            remove_tree(abandoned)
        # An attempt that was given up may still write, so each has a name of its own.
        partial = out.with_name(f"{out.name}.{secrets.token_hex(4)}.partial")
        partial.mkdir(parents=True)
        result = json.dumps(work(partial), ensure_ascii=False)
        (partial / RESULT).write_text(result, encoding="utf-8")
        sync_tree(partial)
        try:
            partial.rename(out)
        except OSError:
            if not (out / RESULT).exists():  # another process was faster
                raise
            remove_tree(partial)
        sync(out.parent)
    return json.loads((out / RESULT).read_text(encoding="utf-8"))
