"""The command `python -m bench.quality`: run the entries one by one, print one table, write one CSV and a plot."""

import argparse
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from bench.output import device_name, portable, results_file, write_csv
from bench.quality.contest import FEW, JOB, ROWS, run_entry
from bench.quality.systems import MINUTES, RECIPE, RECIPE_NAMES, SYSTEMS, entries
from bench.quality.table import COLUMNS, head_start, judge, plot, table
from bench.train.contenders import OURS
from pipeline.config import ROOT, RunConfig, load_config
from pipeline.files import write_atomically

QUICK = (  # a tiny model on the embedded sample
    *("corpus=sample", "vocab.source_size=2000", "vocab.target_size=2000", "model.dim=64", "model.ffn_dim=128"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "score.resamples=100", "decode.max_length_ratio=1"),
)
QUICK_MINUTES = (0.03, 0.06)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    options = parse()
    config = load_config(overrides(options))
    minutes = options.minutes or (QUICK_MINUTES if options.quick else MINUTES)
    root = ROOT / config.runtime.artifacts / "quality" / ("quick" if options.quick else "full")
    device = device_name("cpu")
    out = results_file("quality", device, options.out, quick=options.quick)
    results: dict[str, list[dict[str, object]]] = {}
    for entry in entries(options.systems, options.configurations):
        results[entry.name] = run_entry(entry, config, minutes, root, lines=FEW if options.quick else None)
        for row in results[entry.name]:
            result = row["note"] or f"minute {row['minutes']:g}: BLEU {row['bleu']:.2f}"
            print(f"{entry.name}: {result}", file=sys.stderr, flush=True)
        _write(results, root, config, device, out)
    rows = _write(results, root, config, device, out)
    print(f"\nBLEU after equal training time on {device}\n\n{table(rows)}\n\n{head_start(rows)}\n\nwritten to {out}")
    return 0 if all(row["note"] == "" for row in rows if row["system"] == OURS) else 1


def overrides(options: argparse.Namespace) -> list[str]:
    """Return the overrides of our recipe."""
    corpus = [] if options.corpus is None else [f"corpus.path={options.corpus.absolute()}"]
    artifacts = [] if options.artifacts is None else [f"runtime.artifacts={options.artifacts}"]
    return [f"recipes={RECIPE}", *(QUICK if options.quick else corpus), *artifacts]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description="BLEU after equal training time.")
    parser.add_argument("--corpus", type=Path, help="directory of the files of Multi30k; see docs/benchmarks.md")
    parser.add_argument("--systems", choices=SYSTEMS, nargs="+", default=SYSTEMS)
    names = ", ".join(f"{configuration}: {name}" for configuration, name in RECIPE_NAMES.items())
    parser.add_argument(
        "--configurations", choices=RECIPE_NAMES, nargs="+", default=tuple(RECIPE_NAMES), help=f"{names}; default all"
    )
    parser.add_argument("--minutes", type=float, nargs="+", help="of training before each test; default 5 15 45")
    parser.add_argument("--artifacts", help="where finished runs are kept; by default that of make train")
    parser.add_argument("--quick", action="store_true", help="a tiny model on the sample, for seconds: does it run?")
    parser.add_argument(
        "--out", type=Path, help="CSV file, or a folder for quality-<device>.csv; default bench/results"
    )
    options = parser.parse_args()
    minutes = options.minutes or [1.0]
    if minutes != sorted(set(minutes)) or minutes[0] <= 0:
        parser.error(f"--minutes {' '.join(f'{value:g}' for value in minutes)} must be positive and rise")
    return options


def _write(
    results: dict[str, list[dict[str, object]]], root: Path, config: RunConfig, device: str, out: Path
) -> list[dict[str, object]]:
    """Write CSV, settings and plot, with what earlier commands finished. Returns the judged rows."""
    everything = []
    settings = {}
    for entry in entries(SYSTEMS):
        rows = results.get(entry.name) or earlier(root / entry.name)
        everything += rows
        if rows and (root / entry.name / JOB).exists():
            settings[entry.name] = json.loads((root / entry.name / JOB).read_text(encoding="utf-8"))
    judged = judge(everything, device)
    write_csv(judged, COLUMNS, out)
    write_atomically(out.with_suffix(".json"), json.dumps(portable({"recipe": asdict(config), **settings}), indent=1))
    plot(judged, out.with_suffix(".png"))
    return judged


def earlier(directory: Path) -> list[dict[str, object]]:
    """Return the rows that an earlier command finished in a directory, none without them."""
    path = directory / ROWS
    rows: list[dict[str, object]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return rows


if __name__ == "__main__":
    sys.exit(main())
