"""One stage of the data, all before it being there: `python -m tests.system.data_worker <stage> key=value …`.

Prints, as one line of JSON, the processor time of this process and of those that it started (seconds), and the most
memory that any of them had (bytes).
"""

import json
import resource
import sys
from pathlib import Path

from pipeline.config import ROOT, load_config
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.stages import encode, vocab
from pipeline.dag.store import Store
from pipeline.dag.system import System
from pipeline.tasks import end_workers

STAGES = ("fetch", "clean", "vocab", "encode")


def main(stage: str, overrides: list[str]) -> None:
    config = load_config(overrides)
    store, data = Store(ROOT / config.runtime.artifacts), config.runtime.data
    corpus = prepare_corpus(config.corpus, config.pairs, store, data)
    (pair,) = corpus.pairs
    if stage != "fetch":
        cleaned = clean(config.corpus, store, corpus, pair, data)
    if stage in ("vocab", "encode"):
        parts = {part: getattr(config, part) for part in ("vocab", "batch", "model", "train", "runtime", "layout")}
        system = System(label="moe", pairs=[pair], **parts)
        vocabulary = store.get(vocab(system, {pair: cleaned}))
    if stage == "encode":
        store.get(encode(system, pair, vocabulary, cleaned))
    assert any(title.startswith(stage) for title in store.ran), store.ran
    end_workers()  # only processes that have ended are counted
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(times.ru_utime + times.ru_stime for times in usage)
    print(json.dumps({"seconds": seconds, "bytes": max(own_peak(), 1024 * usage[1].ru_maxrss)}))


def own_peak() -> int:
    """ru_maxrss would count what the process that started this one had."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
