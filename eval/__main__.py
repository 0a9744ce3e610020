"""Command line of eval: score plain files, or write the report or the data page of a run."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `score`, `report` or `data`; 0 on success, 2 with one line on stderr for bad input."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        if options.command == "score":
            _score(options.hyp, options.ref, options.tgt, options.metric)
        elif options.command == "report":
            _report(options.run_dir)
        else:
            _data(options.run_dir)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eval", description="Score translations, report runs.")
    commands = parser.add_subparsers(dest="command", required=True)
    score = commands.add_parser("score", help="corpus scores of a plain file against one reference file")
    score.add_argument("--hyp", type=Path, required=True, help="translations, a detokenized line each")
    score.add_argument("--ref", type=Path, required=True, help="references, as many lines")
    score.add_argument("--tgt", required=True, help="BCP-47 code of the target language, e.g. ja or zh-Hans")
    score.add_argument("--metric", nargs="+", choices=["bleu", "chrf++"], default=["bleu", "chrf++"])
    report = commands.add_parser("report", help="write report.html and its figures into a run's directory")
    report.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    data = commands.add_parser("data", help="write data.html, funnel.csv and its figure into a run's directory")
    data.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    return parser


def _score(hyp: Path, ref: Path, tgt: str, metrics: Sequence[str]) -> None:
    from eval.metrics import score_corpus

    hypotheses, references = _read_lines(hyp), _read_lines(ref)
    for metric in metrics:
        result = score_corpus(hypotheses, references, tgt, metric)
        print(f"{metric}\t{result.score:.2f}\t{result.signature}")


def _report(run_dir: Path) -> None:
    from eval.report import write_report

    print(write_report(run_dir))


def _data(run_dir: Path) -> None:
    from eval.data_page import write_data

    print(write_data(run_dir))


def _read_lines(path: Path) -> list[str]:
    """Lines cut at line feeds only, as sacreBLEU cuts them; ValueError where the file is not UTF-8."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}; convert it first") from error
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")] if text else []


if __name__ == "__main__":
    sys.exit(main())
