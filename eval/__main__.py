"""The command line of eval. It scores plain files, or writes the report, the summary or the data page of a run."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.records.scores import SACREBLEU_METRICS
from eval.score.comet import NAME as COMET
from eval.terminal import log_to_terminal, printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of those below. Return 0, or 2 after one line on stderr for bad input."""
    options = _parser().parse_args(arguments)
    log_to_terminal()
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it logs every score that it computes
    try:
        if options.command == "score":
            _score(options)
        elif options.command == "report":
            _report(options)
        elif options.command == "summary":
            _summary(options)
        elif options.command == "comet":
            _comet(options.model)
        elif options.command == "choose":
            _choose(options)
        else:
            _data(options.run_dir)
    except (ValueError, OSError) as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eval", description="Score translations, report runs.")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_score(commands.add_parser("score", help="score files of translations against reference files"))
    comet = commands.add_parser("comet", help="print COMET's score of every line of stdin, for score.commands")
    comet.add_argument("model", type=Path, help="checkpoints/model.ckpt of a COMET or CometKiwi model")
    choose = commands.add_parser("choose", help="choose among several translations of each line by a neural metric")
    choose.add_argument("--src", type=Path, required=True, help="what make translate read with format=json")
    choose.add_argument("--hyp", type=Path, required=True, help="what it wrote, with decode.n_best=8 for example")
    choose.add_argument("--command", dest="metric", required=True, help="of the metric, as score.commands has it")
    _add_report(
        commands.add_parser("report", help="write report.html, its figures and sweep.csv of one run or several")
    )
    summary = commands.add_parser("summary", help="write summary.md into a run's directory: its table of scores")
    summary.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="directory of a finished run, as runs/demo")
    summary.add_argument("--into", type=Path, help="a Markdown file, as README.md, whose table of the demo is replaced")
    data = commands.add_parser("data", help="write data.html, funnel.csv and its figure into a run's directory")
    data.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="the directory of a run whose data.json is there")
    return parser


def _add_score(score: argparse.ArgumentParser) -> None:
    add = score.add_argument
    add(
        "--hyp",
        type=Path,
        nargs="+",
        required=True,
        help="translations of one or more systems, a detokenized line each",
    )
    add("--ref", type=Path, nargs="+", required=True, help="one or more references, as many lines each")
    add("--src", type=Path, help="sources, which comet needs")
    add("--tgt", required=True, help="code of the target language, e.g. ja or zh-Hans")
    add(
        "--metric",
        nargs="+",
        default=["bleu", "chrf++"],
        help=f"{', '.join((*SACREBLEU_METRICS, COMET))} (bleu chrf++)",
    )
    add("--sentence", action="store_true", help="score every line by itself")
    add("--confidence", action="store_true", help="95 %% intervals by bootstrap")
    tests = score.add_mutually_exclusive_group()
    tests.add_argument("--paired-bs", dest="test", action="store_const", const="bs", help="paired bootstrap")
    tests.add_argument("--paired-ar", dest="test", action="store_const", const="ar", help="randomisation test")
    add("--baseline", type=Path, help="the system that others are tested against; else the first of --hyp")
    add("--resamples", type=int, default=0, help="of the bootstrap (1,000), or trials of the randomisation (10,000)")
    add("--comet-model", type=Path, help="checkpoints/model.ckpt of a COMET model")
    add("--format", choices=["text", "tsv", "json"], default="text", help="of the output (text)")


def _add_report(report: argparse.ArgumentParser) -> None:
    add = report.add_argument
    add("runs", nargs="+", metavar="[LABEL=]RUN", help="a directory of a run, or its name below --runs")
    add("--out", type=Path, help="where to write; else into the directory of the one run")
    add("--replace", choices=["0", "1"], default="0", help="1: also where --out has the page of other runs (0)")
    add("--losses", type=_losses, default=(), help="training losses to count tokens to: 3.0,2.5,2.2")
    add("--runs", type=Path, default=Path("runs"), dest="below", help="where names of runs are looked up (runs)")


def _losses(text: str) -> tuple[float, ...]:
    try:
        losses: tuple[float, ...] = tuple(float(loss) for loss in text.split(","))
    except ValueError:
        losses = ()  # text that is no number gets the same message
    if not losses or not all(0 < loss < float("inf") for loss in losses) or len(set(losses)) < len(losses):
        raise argparse.ArgumentTypeError(f"{text} must be different losses above 0, such as 3.0,2.5,2.2")
    return losses


def _score(options: argparse.Namespace) -> None:
    from eval.score.command import score

    sys.stdout.write(score(options))


def _comet(model: Path) -> None:
    """Print a score for each line of source, translation and reference, with tabs between them."""
    from eval.score.comet import Comet

    rows = [line.rstrip("\n").split("\t") for line in sys.stdin]
    if wrong := [number for number, row in enumerate(rows, start=1) if len(row) != 3]:
        raise ValueError(f"line {wrong[0]} of stdin has no source, translation and reference with tabs between them")
    sources, translations, references = ([row[side] for row in rows] for side in range(3))
    for score in Comet(model).scores(sources, translations, references):
        print(score)


def _choose(options: argparse.Namespace) -> None:
    from eval.score.choose import chosen_translations
    from eval.score.text_files import read_lines

    for text in chosen_translations(read_lines(options.src), read_lines(options.hyp), options.metric):
        print(text)


def _report(options: argparse.Namespace) -> None:
    from eval.records.results import find_run, load_results
    from eval.report.page import write_report
    from eval.report.page_record import check_page, record_page

    directories = [find_run(text, options.below) for text in options.runs]
    if options.out is None and len(directories) > 1:
        raise ValueError(f"--out is needed for {len(directories)} runs: the directory to write their comparison into")
    runs = [directory for _, directory in directories]
    out = options.out or runs[0]
    if options.replace != "1":
        check_page(out, runs)
    page = write_report(out, load_results(directories), options.losses)
    record_page(out, runs)
    print(page)


def _summary(options: argparse.Namespace) -> None:
    from eval.report.markdown_summary import write_summary

    print(write_summary(options.run_dir, options.into))


def _data(run_dir: Path) -> None:
    from eval.report.data_page import write_data

    print(write_data(run_dir))


if __name__ == "__main__":
    sys.exit(main())
