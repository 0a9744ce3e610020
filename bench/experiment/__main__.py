"""The command `python -m bench.experiment`: archives of runs, tables and contrasts of systems, and a scaling fit."""

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.experiment import contrasts, decoding, gains, scaling, source_use, systems, tokens
from bench.experiment.archive import keep_baselines, keep_run, restore, score
from bench.output import write_csv
from eval.records.results import load_results
from eval.records.scores import BASELINE
from eval.terminal import log_to_terminal
from pipeline.config import ROOT, load_config
from pipeline.dag.run import baselines_run
from pipeline.dag.run_record import commit, environment, ledger

ARCHIVES = ROOT / "recipes" / "freesoft38" / "results"


def main() -> int:
    options = parse()
    log_to_terminal()
    try:
        if options.command == "keep":
            for run in options.runs:
                print(keep_run(run, options.archives))
        elif options.command == "scaling":
            predictions = scaling.describe(load_results([("", run) for run in options.runs]))
            print(scaling.table(predictions))
            if options.out:
                write_csv(predictions, scaling.COLUMNS, options.out)
        elif options.command == "contrasts":
            rows = contrasts.compare(options.runs, options.of or (), options.test_set)
            print(contrasts.table(rows))
            if options.out:
                write_csv(rows, contrasts.COLUMNS, options.out)
        elif options.command == "systems":
            described = systems.describe(options.runs, options.test_set, by_run=options.by_run)
            print(systems.table(described))
            if options.out:
                write_csv(described, systems.COLUMNS, options.out)
        elif options.command == "tokens":
            needed = tokens.measure(options.runs, options.loss)
            print(tokens.table(needed))
            if options.out:
                write_csv(needed, tokens.COLUMNS, options.out)
        elif options.command == "gains":
            gained = gains.measure(options.runs)
            print(gains.table(gained))
            if options.out:
                write_csv(gained, gains.COLUMNS, options.out)
        elif options.command == "decoding":
            amounts = {name: getattr(options, name) for name in ("sentences", "rounds", "threads")}
            rows = decoding.measure(options.runs, options.artifacts, **amounts)
            print(decoding.table(rows))
            if options.out:
                write_csv(rows, decoding.COLUMNS, options.out)
        elif options.command == "source":
            used = source_use.measure(options.runs, options.artifacts, sentences=options.sentences)
            print(source_use.table(used))
            if options.out:
                write_csv(used, source_use.COLUMNS, options.out)
        elif options.command == "baselines":
            print(train_and_keep(options.name, options.overrides, options.archives))
        else:
            for run in restore(options.archives, options.out, incomplete=options.incomplete):
                score(run)
                print(run)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.experiment", description=__doc__)
    place = "directory of the archives; default recipes/freesoft38/results"
    parser.add_argument("--archives", type=Path, default=ARCHIVES, help=place)
    commands = parser.add_subparsers(dest="command", required=True)
    keep = commands.add_parser("keep", help="write the archives of finished runs that have no bilingual models")
    keep.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="such as runs/dense_s1")
    bilingual = commands.add_parser("baselines", help="train the bilingual models that are missing, and keep all")
    bilingual.add_argument("name", help="name of their archive")
    bilingual.add_argument("overrides", nargs="+", help="settings, as make baselines takes them in ARGS")
    fitted = commands.add_parser("scaling", help="fit training loss against tokens, and extrapolate it")
    fitted.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="finished runs of equal budgets")
    fitted.add_argument("--out", type=Path, help="CSV file to write")
    compared = commands.add_parser("contrasts", help="differences of systems, with intervals of sentences and seeds")
    compared.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN_DIR", help="finished runs of all systems and seeds"
    )
    compared.add_argument("--of", action="append", metavar="CONTRAST", help="such as 'moe_8e - dense'; may be repeated")
    compared.add_argument("--test-set", default=contrasts.OWN, help="a further test set of the runs, such as ntrex")
    compared.add_argument("--out", type=Path, help="CSV file to write")
    described = commands.add_parser("systems", help="size, training speed, memory and scores of each system")
    described.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="finished runs")
    described.add_argument("--test-set", default=contrasts.OWN, help="of the scores; a further one, such as ntrex")
    described.add_argument("--by-run", action="store_true", help="a row for each run in place of each system")
    described.add_argument("--out", type=Path, help="CSV file to write")
    needed = commands.add_parser("tokens", help="target tokens that each system needs to a training loss")
    needed.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="finished runs, the first system first")
    needed.add_argument("--loss", type=float, action="append", required=True, help="in nats a token; may be repeated")
    needed.add_argument("--out", type=Path, help="CSV file to write")
    gained = commands.add_parser("gains", help="what each system gains over the bilingual model of each pair")
    gained.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="runs with bilingual models")
    gained.add_argument("--out", type=Path, help="CSV file to write")
    timed = commands.add_parser("decoding", help="sentences a second of each system, on its own test sets, in turns")
    timed.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="finished runs")
    timed.add_argument("--artifacts", type=Path, default=ROOT / "data" / "artifacts", help="directory of their models")
    timed.add_argument("--sentences", type=positive, default=5, help="of each pair's test set")
    timed.add_argument("--rounds", type=positive, default=5)
    timed.add_argument("--threads", type=positive, default=1, help="of the CPU")
    timed.add_argument("--out", type=Path, help="CSV file to write")
    used = commands.add_parser("source", help="losses of references beside their own sources, and beside others")
    used.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="finished runs")
    used.add_argument("--artifacts", type=Path, default=ROOT / "data" / "artifacts", help="directory of their models")
    used.add_argument("--sentences", type=positive, default=100, help="of each pair's test set")
    used.add_argument("--out", type=Path, help="CSV file to write")
    restored = commands.add_parser("restore", help="write run directories, with scores, from all archives")
    restored.add_argument("out", type=Path, help="directory to write them into")
    restored.add_argument("--incomplete", action="store_true", help="allow pairs without a bilingual model")
    return parser.parse_args()


def positive(text: str) -> int:
    """Read a whole number from 1 on. Raises ValueError."""
    value = int(text)
    if value < 1:
        raise ValueError(f"{value} is less than 1")
    return value


def train_and_keep(name: str, overrides: list[str], archives: Path) -> Path:
    """Train the bilingual models that are missing, and write the archive of all. Returns its path."""
    config = load_config(overrides)
    run = baselines_run(config)
    files: dict[str, dict[str, Path]] = {"": {}}
    for model in run.models.trained:
        (pair,) = model.system.pairs
        files[""][pair.name] = model.translations.path / f"{pair.name}.jsonl"
    for test_set, translations in run.tests.items():
        files[test_set] = {pair.name: lines.path / f"{pair.name}.jsonl" for pair, lines in translations.items()}
    record: dict[str, Any] = {
        "name": name,
        "commit": commit(),
        "environment": environment(config.runtime),
        "config": config.to_json(),
        "train_pairs": {pair.name: count for pair, count in run.rows.items()},
        "baseline_boundaries": config.baselines.boundaries(),
        "systems": {BASELINE: [ledger(model) for model in run.models.trained]},
    }
    return keep_baselines(name, files, record, archives)


if __name__ == "__main__":
    sys.exit(main())
