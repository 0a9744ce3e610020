"""The command `python -m bench.experiment`: keep the results of runs as small archives, and restore them elsewhere."""

import argparse
import sys
from pathlib import Path

from bench.experiment.archive import keep_baselines, keep_run, restore
from eval.records.run_record import load_run
from eval.score.run import write_scores
from eval.terminal import log_to_terminal
from pipeline.config import ROOT, load_config
from pipeline.dag.run import baselines_run
from pipeline.dag.run_record import ledger

KEPT = ROOT / "recipes" / "freesoft38" / "results"


def main() -> int:
    options = parse()
    log_to_terminal()
    try:
        if options.command == "keep":
            for run in options.runs:
                print(keep_run(run, options.archives))
        elif options.command == "baselines":
            print(_baselines(options))
        else:
            _restore(options)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.experiment", description=__doc__)
    parser.add_argument(
        "--archives", type=Path, default=KEPT, help="their directory; default recipes/freesoft38/results"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    keep = commands.add_parser("keep", help="write the archives of finished runs")
    keep.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="such as runs/freesoft38_dense")
    bilingual = commands.add_parser("baselines", help="train what is missing of bilingual models and keep all of them")
    bilingual.add_argument("name", help="of the archive")
    bilingual.add_argument("overrides", nargs="+", help="as of python -m pipeline baselines, such as recipes=demo")
    restored = commands.add_parser("restore", help="write run directories with the scores of all archives")
    restored.add_argument("--runs", type=Path, default=ROOT / "runs", help="where to write them; default runs")
    return parser.parse_args()


def _baselines(options: argparse.Namespace) -> Path:
    trained = baselines_run(load_config(options.overrides))[0].trained
    pairs = [model.system.pairs[0].name for model in trained]
    translations = {pair: model.translations.path / f"{pair}.jsonl" for pair, model in zip(pairs, trained, strict=True)}
    return keep_baselines(options.name, translations, [ledger(model) for model in trained], options.archives)


def _restore(options: argparse.Namespace) -> None:
    for run in restore(options.archives, options.runs):
        score = load_run(run).config["score"]
        write_scores(run, metrics=score["metrics"], commands=score["commands"], n_resamples=score["resamples"])
        print(run)


if __name__ == "__main__":
    sys.exit(main())
