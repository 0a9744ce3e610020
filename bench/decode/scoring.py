"""Benchmark of the stage `score`: 38 pairs of 700 lines, two systems, BLEU and chrF++, 1,000 resamples.

Each line joins two sentences of the sample's test set. So lines are as long as news (about 150 characters), and no two
are equal. Systems lose a share of the words. Run it alone with `python -m bench.decode.scoring`.
"""

import csv
import json
import random
import tempfile
import time
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from eval.score.run import write_scores
from eval.score.significance import NUM_RESAMPLES

NUM_PAIRS = 38
NUM_LINES = 700
LIMIT = 60.0  # seconds on two cores
_TEST_SET = Path(__file__).resolve().parents[2] / "data" / "sample" / "test.tsv"
_CODES = {"zh_CN": "zh-Hans"}
_LOST = {"moe": 0.2, "bilingual": 0.3}  # share of the words that each system loses


def seconds(*, num_pairs: int = NUM_PAIRS, num_lines: int = NUM_LINES, n_resamples: int = NUM_RESAMPLES) -> float:
    """Return the wall time of `write_scores` on a run of that size."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        write_run(run_dir, num_pairs, num_lines)
        start = time.perf_counter()
        write_scores(run_dir, n_resamples=n_resamples)
        return time.perf_counter() - start


def write_run(run_dir: Path, num_pairs: int, num_lines: int) -> None:
    """Write the record and the translations of a run of that size, as `write_scores` reads them."""
    texts = _test_sentences()
    pairs = [f"{source}:{target}" for source, target in permutations(texts, 2)]
    pairs = random.Random(1).sample(pairs, num_pairs)
    record = {"name": "scoring", "pairs": pairs, "train_pairs": dict.fromkeys(pairs, 1000)}
    record["systems"] = {system: [] for system in _LOST}
    (run_dir / "run.json").write_text(json.dumps(record), encoding="utf-8")
    for system, lost in _LOST.items():
        for pair in pairs:
            rng = random.Random(f"{system} {pair}")
            path = run_dir / "translations" / system / f"{pair}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8") as file:
                for text in _lines(texts[pair.partition(":")[2]], num_lines):
                    line = {"source": "", "hypothesis": _damaged(text, lost, rng), "reference": text}
                    file.write(json.dumps(line) + "\n")


def _test_sentences() -> dict[str, list[str]]:
    with _TEST_SET.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return {_CODES.get(code, code): [row[code] for row in rows if row[code]] for code in rows[0]}


def _lines(sentences: Sequence[str], count: int) -> list[str]:
    """Return lines that each join another two of the sentences."""
    size = len(sentences)
    return [f"{sentences[i % size]} {sentences[(i + 1 + i // size) % size]}" for i in range(count)]


def _damaged(text: str, lost: float, rng: random.Random) -> str:
    separator = " " if text.count(" ") > len(text) / 20 else ""
    units = text.split(separator) if separator else list(text)
    return separator.join(unit for unit in units if rng.random() > lost) or text


if __name__ == "__main__":
    print(f"{NUM_PAIRS} pairs x {NUM_LINES} lines, {NUM_RESAMPLES} resamples: {seconds():.1f} s (limit {LIMIT:.0f} s)")
