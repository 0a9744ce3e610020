"""Quality against time of the ways to search and to choose: `python -m bench.decode.choice NAME…`.

Finished runs, such as seeds of one recipe, translate a part of their test sets by beam search, by sampling, and by
minimum Bayes risk over both. The ways take turns, in one process. Seconds are the median over rounds, from text to
text.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from bench.output import Row, aligned, device_name, number, percent, results_file, write_csv
from eval.records.run_record import read_translations
from eval.score.metrics import scorer_for
from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair
from pipeline.dag.store import Store
from pipeline.decode.config import DECODE_UNSET, SAMPLING_DEFAULTS, DecodeConfig
from pipeline.decode.model import load_model
from pipeline.decode.text.agreement import best_by_agreement
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.finished_run import FinishedRun
from pipeline.jobs.matmul import choose_matmul
from pipeline.vocab.tokenizer import Vocabulary

METRICS = ("bleu", "chrf", "chrf++", "ter")
COLUMNS = ("run", "device", "precision", "pair", "way", "sentences", "rounds", "seconds", "choosing", *METRICS)
MBR, SAMPLE = {"choose": "mbr"}, {"search": "sample"}
WAYS: dict[str, dict[str, Any]] = {
    **{f"beam {beam}": {"beam": beam} for beam in (1, 4, 8)},
    "sample": SAMPLE,
    **{f"mbr chrf of beam {beam}": {**MBR, "beam": beam} for beam in (8, 16)},
    **{f"mbr chrf of {draws} draws": {**MBR, **SAMPLE, "draws": draws} for draws in (16, 32, 64)},
    "mbr bleu of 32 draws": {**MBR, **SAMPLE, "draws": 32, "utility": "bleu"},
}
# in place of a run's own settings
NEUTRAL: dict[str, Any] = {**DECODE_UNSET, **SAMPLING_DEFAULTS, "search": "beam", "n_best": 1}

TestSet = tuple[list[Line], list[str]]  # sources and references


def main() -> int:
    options = parse()
    device, name = torch.device(options.device), device_name(options.device)
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
        choose_matmul()
    rows: list[Row] = []
    for run_name in options.names:
        run = FinishedRun.open(run_name, runs=ROOT / options.runs, store=Store(ROOT / options.artifacts))
        rows += [{"device": name, **row} for row in measure_run(run, options, device)]
    rows.sort(key=lambda row: [*WAYS].index(row["way"]))  # a way's rows, of all runs, one below the other
    out = results_file("choice", name, options.out)
    write_csv(rows, COLUMNS, out)
    print(f"{', '.join(options.names)} on {name}, means over pairs and runs\n\n{table(rows)}\n\nwritten to {out}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.decode.choice", description="Quality against time.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="name of a finished run; several are one system")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp64", "int8"), help="default: the run's")
    parser.add_argument("--sentences", type=int, default=700, help="most sentences of each test set")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--artifacts", type=Path, default=Path("data/artifacts"))
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for choice-<device>.csv; default bench/results")
    options = parser.parse_args()
    for name in ("sentences", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}={getattr(options, name)} must be at least 1")
    return options


def measure_run(run: FinishedRun, options: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """Yield a row for each pair and way of one run, with its name and precision."""
    config = replace(run.decode, **{**NEUTRAL, "precision": options.precision or run.decode.precision})
    translator = translator_of(run, config, device)
    tests = {pair: test_set(run, pair, options.sentences) for pair in run.pairs}
    for row in measure(translator, tests, WAYS, options.rounds):
        yield {"run": run.name, "precision": config.precision, **row}


def translator_of(run: FinishedRun, config: DecodeConfig, device: torch.device) -> Translator:
    """Return a translator of this process with a run's model. It truncates nothing."""
    vocabulary, longest = Vocabulary.load(run.vocabulary.path), run.max_source_tokens
    model = load_model(run.model.path / "checkpoints", vocabulary, longest=longest, config=config, device=device)
    return Translator(model, vocabulary, config, max_source_tokens=longest, long="whole")


def test_set(run: FinishedRun, pair: LangPair, sentences: int) -> TestSet:
    """Return the first sources and references of a pair's test set, as the run translated it."""
    translations = read_translations(run.directory / "translations" / "moe" / f"{pair.name}.jsonl")[:sentences]
    lines = [
        Line(text=translation.source, source=pair.src, target=pair.tgt, number=number)
        for number, translation in enumerate(translations)
    ]
    return lines, [translation.reference for translation in translations]


def measure(
    translator: Translator, tests: Mapping[LangPair, TestSet], ways: Mapping[str, Mapping[str, Any]], rounds: int
) -> Iterator[Row]:
    """Yield a row for each pair and way. seconds: of search and choice. choosing: the part of the choice."""
    for pair, (lines, references) in tests.items():
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        texts: dict[str, list[str]] = {}
        for _ in range(rounds):
            for way, settings in ways.items():
                texts[way], searching, choosing = translate(translator, lines, settings)
                times[way].append((searching + choosing, choosing))
        for way, of_way in times.items():
            seconds, choosing = (median(values) for values in zip(*of_way, strict=True))
            scores = {m: scorer_for(m, pair.tgt).corpus_score(texts[way], [references]).score for m in METRICS}
            about = {"pair": pair.name, "way": way, "sentences": len(lines), "rounds": rounds}
            yield {**about, "seconds": seconds, "choosing": choosing, **scores}


def translate(
    translator: Translator, lines: Sequence[Line], settings: Mapping[str, Any]
) -> tuple[list[str], float, float]:
    """Return the best translation of each line, and the seconds of the search and of the choice."""
    config = replace(translator.config, **settings)
    everything: dict[str, Any] = {"choose": "likeliest", "utility": "chrf", "n_best": config.candidates}
    searcher = translator.using(replace(config, **everything))
    best: dict[int, str] = {}
    start, choosing = time.perf_counter(), 0.0
    plan = searcher.plan(lines)
    for batch in plan.batches:
        hypotheses = searcher.search(batch)
        choice_start = time.perf_counter()
        for part, of_part in zip(batch, hypotheses, strict=True):
            texts = searcher.texts(of_part)
            place = best_by_agreement(texts, config, part.target)[0] if config.choose == "mbr" else 0
            best[part.line] = texts[place]
        choosing += time.perf_counter() - choice_start
    total = time.perf_counter() - start
    return [best.get(index, "") for index in range(len(lines))], total - choosing, choosing


def table(rows: Sequence[Row]) -> str:
    """Return the means over pairs and runs as a table for a terminal."""
    lines = [["way", "sentences/s", "choosing %", *METRICS]]
    for way in dict.fromkeys(row["way"] for row in rows):
        of_way = [row for row in rows if row["way"] == way]
        sentences, seconds, choosing = (sum(row[key] for row in of_way) for key in ("sentences", "seconds", "choosing"))
        scores = [number(fmean(row[metric] for row in of_way), 2) for metric in METRICS]
        lines.append([way, number(sentences / seconds, 1), percent(choosing / seconds), *scores])
    return aligned(lines, left=["way"])


if __name__ == "__main__":
    sys.exit(main())
