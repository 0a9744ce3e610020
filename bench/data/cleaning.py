"""Benchmark of cleaning one pair in one thread, beside OpusFilter with the same rules on the same lines."""

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.data.corpus import Text, fetched
from bench.data.scale import AGAINST, OURS, PEER, PEER_BARE, SAME, Scale
from pipeline.config import ROOT
from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.cleaning.clean import clean
from pipeline.corpus.cleaning.codepoints import Texts
from pipeline.corpus.cleaning.scripts import scripts_of
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.languages import LangPair
from pipeline.dag.corpus import Corpus

PEER_PYTHON = ROOT / ".venv-opusfilter" / "bin" / "python"
DEFAULT = Rules(language=None, near_duplicates=None)
# the rules that OpusFilter has too
SHARED = replace(DEFAULT, min_digit_overlap=None, max_end_difference=None, min_script=None, held_out=None)

Pairs = Counter[tuple[str, str]]


def measure(text: Text, scale: Scale, directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each round and contender. Seconds are processor time, which other programs do not add to."""
    config, corpus = fetched(text, directory)
    variants = {OURS: replace(config, rules=DEFAULT), SAME: replace(config, rules=SHARED)}
    for number in range(scale.rounds):
        kept: dict[str, Pairs] = {}
        notes: dict[str, str] = {}
        seconds: dict[str, float | None] = {}
        for variant, cleaning in variants.items():
            out = directory / f"{number} {variant}"
            seconds[variant] = _ours(cleaning, corpus, text.pair, out)
            kept[variant] = _bitext(out)
        for variant, our_variant in AGAINST.items():
            out = directory / f"{number} {variant}"
            seconds[variant], notes[variant] = _opusfilter(directory / "files", text.pair, out, variant)
            kept[variant] = _lines(out) if not notes[variant] else Counter()
            notes[variant] = notes[variant] or _difference(kept[our_variant], kept[variant])
        for variant in seconds:
            yield {
                "section": "cleaning",
                "text": text.name,
                "variant": variant,
                "threads": 1,
                "round": number,
                "rows": text.train.num_rows,
                "seconds": seconds[variant],
                "kept": kept[variant].total() or None,
                "note": notes.get(variant, ""),
            }


def _ours(config: CorpusConfig, corpus: Corpus, pair: LangPair, out: Path) -> float:
    out.mkdir()
    began = time.process_time()
    clean(
        config,
        pair,
        tables=[table for table, _ in corpus.tables_of(pair)],
        held_out=corpus.held_out.path if corpus.held_out else None,
        out=out,
    )
    return time.process_time() - began


def _opusfilter(files: Path, pair: LangPair, out: Path, variant: str) -> tuple[float | None, str]:
    """Return the seconds of OpusFilter, or None and the reason."""
    if not PEER_PYTHON.exists():
        return None, "not installed: bench/setup.sh data"
    out.mkdir()
    job = {
        "inputs": [str(files / f"train.{pair.src}-{pair.tgt}.{code}") for code in (pair.src, pair.tgt)],
        "directory": str(out),
        "normalise": variant != PEER_BARE,
        "nearest": variant == PEER,
        "min_digit_overlap": DEFAULT.min_digit_overlap,
        "min_script": DEFAULT.min_script,
        "scripts": [scripts_of(code) for code in (pair.src, pair.tgt)],
        "max_chars": SHARED.max_chars,
        "max_length_ratio": SHARED.max_length_ratio,
        "min_letters": SHARED.min_letters,
    }
    (out / "job.json").write_text(json.dumps(job), encoding="utf-8")
    command = [str(PEER_PYTHON), "-m", "bench.data.peer_opusfilter", str(out / "job.json")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        return None, process.stderr.strip().splitlines()[-1]
    return float(json.loads(process.stdout.splitlines()[-1])["seconds"]), ""


def _bitext(directory: Path) -> Pairs:
    return Counter(
        pair
        for batch in iter_bitext(directory, "train")
        for pair in zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True)
    )


def _lines(directory: Path) -> Pairs:
    """Return the pairs that OpusFilter kept, in our normal form."""
    sides: list[Sequence[str]] = []
    for side in ("src", "tgt"):
        with (directory / f"kept.{side}").open(encoding="utf-8", newline="\n") as file:
            sides.append(Texts.normalized(pa.array([line.removesuffix("\n") for line in file])).array.to_pylist())
    return Counter(zip(*sides, strict=True))


def _difference(our_pairs: Pairs, peer_pairs: Pairs) -> str:
    """Return a sentence with the numbers of rows that only one of the two kept."""
    ours_alone, peer_alone = (our_pairs - peer_pairs).total(), (peer_pairs - our_pairs).total()
    return f"{ours_alone} rows kept by ours alone, {peer_alone} by it alone"
