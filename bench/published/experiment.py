"""The tables of docs/experiment.md and docs/zoo.md, from CSVs that `python -m bench.experiment` writes."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from bench.experiment.contrasts import MULTI_WAY, OWN
from bench.output import MEAN, ROOT
from bench.published.cells import Line, markdown, number, percent, rate, read, source, sources
from eval.number_format import quantity, signed
from eval.records.ending import MARK
from eval.records.scores import METRICS

DIRECTORY = ROOT / "recipes" / "freesoft38"
SEARCHES = ROOT / "configs" / "baselines"
PREFIX = "freesoft38_"  # of the recipes' names
CLASSES = ("all", "high", "medium", "low")
SCORES = ("bleu", "chrf++")
BYTES_OF_A_WEIGHT = 4  # in float32

Key = TypeVar("Key")


def rates(directory: Path = DIRECTORY) -> str:
    """Return the lowest validation loss of each system by learning rate, the best in bold, with BLEU in brackets."""
    path = directory / "rates.csv"
    by_system: dict[str, dict[float, Line]] = {}
    for row in read(path):
        by_system.setdefault(row["recipe"].removeprefix(PREFIX), {})[float(row["learning_rate"])] = row
    tried = sorted({rate for losses in by_system.values() for rate in losses})
    lines = []
    for system, rows in by_system.items():
        losses = _with_best_bold({rate: float(row["validation_loss"]) for rate, row in rows.items()}, tried)
        scores = [f" ({number(rows[rate]['bleu'], 2)})" if rate in rows else "" for rate in tried]
        cells = (loss + score for loss, score in zip(losses, scores, strict=True))
        lines.append((f"`{system}`", *cells, sources(path, rows.values())))
    return markdown(("system", *(f"{rate:g}" for rate in tried), "rows"), lines)


def search(directory: Path = SEARCHES) -> str:
    """Return the lowest validation loss of each candidate for bilingual models by pair, the best of a pair in bold.

    There is a line for each pair of a search, the pairs with most training rows first.
    """
    by_pair: dict[tuple[Path, str], dict[str, Line]] = {}
    for path in sorted(directory.glob(f"{PREFIX}search_*.csv")):
        for row in read(path):
            by_pair.setdefault((path, row["pair"]), {})[row["candidate"]] = row
    tried = sorted({candidate for rows in by_pair.values() for candidate in rows}, reverse=True)
    lines = []
    for (path, pair), rows in sorted(by_pair.items(), key=lambda item: -_training_pairs(item[1])):
        losses = {candidate: float(row["nats_per_character"]) for candidate, row in rows.items()}
        cells = (f"{_training_pairs(rows):,}", *_with_best_bold(losses, tried))
        lines.append((pair, *cells, sources(path, rows.values()).removeprefix(PREFIX)))
    return markdown(("pair", "training pairs", *(f"`{candidate}`" for candidate in tried), "rows"), lines)


def systems(directory: Path = DIRECTORY) -> str:
    """Return the size, scores and losses of each system and of each of its seeds, and what its gate did in training."""
    path, by_run = directory / "systems.csv", directory / "runs.csv"
    runs = read(by_run)
    lines = []
    for mean in read(path):
        system = mean["system"]
        of_seeds = [(by_run, row) for row in runs if re.fullmatch(rf"{re.escape(system)}_s\d+", row["system"])]
        for file, row in of_seeds if len(of_seeds) == 1 else [(path, mean), *of_seeds]:
            seed = row["system"].removeprefix(system).removeprefix("_s") or (MEAN if of_seeds else "")
            scores = [number(row[name], 2) for name in SCORES]
            losses = [number(row[name], 3) for name in ("training_loss", "validation_loss")]
            mixture = [number(row["experts_per_token"], 2), percent(row["drop_rate"])]
            cells = (seed, quantity(float(row["parameters"])), *scores, *losses, *mixture)
            lines.append((f"`{system}`", *cells, source(file, row)))
    header = ("system", "seed", "parameters", "BLEU", "chrF++", "training loss", "loss", "experts", "dropped", "row")
    return markdown(header, lines)


def costs(directory: Path = DIRECTORY) -> str:
    """Return what the training of each system cost."""
    path = directory / "systems.csv"
    lines = []
    for row in read(path):
        flops, tokens = (quantity(float(row[name])) if row[name] else "" for name in ("flops_per_token", "tokens"))
        speeds = [number(row[name]) for name in ("tokens_per_second", "planned_tokens_per_second")]
        cells = (flops, tokens, number(row["train_hours"], 2), *speeds, number(row["memory_gib"], 1))
        lines.append((f"`{row['system']}`", *cells, source(path, row)))
    return markdown(("system", "FLOPs a token", "tokens", "hours", "tokens/s", "planned", "GiB", "row"), lines)


def tokens(directory: Path = DIRECTORY) -> str:
    """Return the target tokens of each system to each loss, and their share of those of the first system."""
    path = directory / "tokens.csv"
    by_system: dict[str, dict[float, Line]] = {}
    for row in read(path):
        by_system.setdefault(row["system"], {})[float(row["loss"])] = row
    losses = list(dict.fromkeys(loss for rows in by_system.values() for loss in rows))
    lines = []
    for system, rows in by_system.items():
        cells = [_tokens(rows[loss]) if loss in rows else "" for loss in losses]
        lines.append((f"`{system}`", next(iter(rows.values()))["num_seeds"], *cells, sources(path, rows.values())))
    return markdown(("system", "seeds", *(f"{loss:g}" for loss in losses), "rows"), lines)


def scaling(directory: Path = DIRECTORY) -> str:
    """Return the fit of each system: its loss after several times the tokens, and how the fit of half of them did."""
    path = directory / "scaling.csv"
    lines = []
    for row in read(path):
        fitted = [_interval(row, name, 2 if name == "exponent" else 3) for name in ("exponent", "later", "backtest")]
        cells = (row["num_seeds"], number(row["loss"], 3), *fitted, source(path, row))
        lines.append((f"`{row['system']}`", *cells))
    return markdown(("system", "seeds", "last loss", "exponent", "at ten times", "end from first half", "row"), lines)


def _interval(row: Line, name: str, digits: int) -> str:
    value, low, high = (number(row[name + ending], digits) for ending in ("", "_low", "_high"))
    return f"{value} [{low}, {high}]"


def _tokens(row: Line) -> str:
    """Return tokens with their share of those of the first system, if it is another one."""
    if not row["tokens"]:
        return ""
    share = float(row["share_of_first"])
    return quantity(float(row["tokens"])) + ("" if share == 1 else f" ({share:.3f})")


def zoo(directory: Path = DIRECTORY) -> str:
    """Return the size, scores, training and speed of translation of each system, whatever is measured of it.

    The systems of the experiment come first, then the model that was trained to be given away.
    """
    files, decoding = [directory / "systems.csv", directory / "release.csv"], directory / "decoding.csv"
    speeds = {row["system"]: row for row in read(decoding)}
    lines = []
    for path, row in ((file, row) for file in files for row in read(file)):
        parameters = float(row["parameters"])
        size = [quantity(parameters), number(f"{parameters * BYTES_OF_A_WEIGHT / 1e6}")]
        scores = [number(row[name], 2) for name in SCORES]
        training = [number(row["train_hours"], 2), number(row["memory_gib"], 1)]
        speed, numbers = "", source(path, row)
        if timed := speeds.get(row["system"]):
            speed = rate(timed, "sentences_per_second")
            numbers += f" {source(decoding, timed)}"
        lines.append((f"`{row['system']}`", *size, *scores, *training, speed, numbers))
    header = ("model", "parameters", "MB", *(METRICS[name].title for name in SCORES), "hours", "GiB", "sentences/s")
    return markdown((*header, "rows"), lines)


def contrasts(directory: Path = DIRECTORY) -> str:
    """Return the contrasts on the systems' own test sets: the difference in each class of pairs, with its interval.

    The pairs with one test text have a line of their own.
    """
    lines = []
    for path in sorted(directory.glob("contrasts*.csv")):
        rows = [row for row in read(path) if row["test_set"] == OWN]
        for contrast, metric in dict.fromkeys((row["contrast"], row["metric"]) for row in rows):
            of_both = {row["resource"]: row for row in rows if (row["contrast"], row["metric"]) == (contrast, metric)}
            for prefix in ("", f"{MULTI_WAY}, "):
                chosen = {name: of_both[prefix + name] for name in CLASSES if prefix + name in of_both}
                if whole := chosen.get("all"):
                    cells = [_difference(chosen[name]) if name in chosen else "" for name in CLASSES]
                    counts = (METRICS[metric].title, whole["num_pairs"], whole["num_seeds"])
                    lines.append((f"`{contrast}`", *counts, *cells, sources(path, chosen.values())))
    return markdown(("contrast", "score", "pairs", "seeds", *CLASSES, "rows"), lines)


def ablations(directory: Path = DIRECTORY) -> str:
    """Return the losses and scores of the mixture with one part changed, means over seeds, and what its gate did."""
    path = directory / "ablations.csv"
    rows = read(path)
    lines = []
    for mean in (row for row in rows if row["seed"] == MEAN):
        of_point = [row for row in rows if row["point"] == mean["point"]]
        difference = _difference(mean, "bleu_delta") if mean["ci_low"] else ""  # empty for the reference
        gate = (number(mean["experts_per_token"], 2), percent(mean["drop_rate"]), number(mean["load_max"], 2))
        cells = (f"{len(of_point) - 1}", number(mean["validation"], 3), number(mean["bleu"], 2), difference, *gate)
        lines.append((f"`{mean['settings']}`", *cells, sources(path, of_point)))
    header = (
        "settings",
        "seeds",
        "loss",
        "BLEU",
        "difference in BLEU",
        "experts",
        "dropped",
        "largest load / mean",
        "rows",
    )
    return markdown(header, lines)


def gains(directory: Path = DIRECTORY) -> str:
    """Return the score of each pair's bilingual model, and that of each system with its gain."""
    path = directory / "gains.csv"
    by_pair: dict[str, dict[str, Line]] = {}
    for row in read(path):
        by_pair.setdefault(row["pair"], {})[row["system"]] = row
    systems = list(dict.fromkeys(system for rows in by_pair.values() for system in rows))
    lines = []
    for pair, rows in by_pair.items():
        first = next(iter(rows.values()))
        bilingual = number(first["bilingual"], 1) + MARK * int(first["improving"])
        cells = [f"{number(rows[system]['score'], 1)} ({_difference(rows[system], 'gain', 1)})" for system in systems]
        counts = (f"{int(first['train_pairs']):,}", first["num_sentences"])
        lines.append((pair, *counts, bilingual, *cells, sources(path, rows.values())))
    return markdown(
        ("pair", "training pairs", "sentences", "`bilingual`", *(f"`{name}`" for name in systems), "rows"), lines
    )


def _difference(row: Line, name: str = "delta", digits: int = 2) -> str:
    """Return a difference with its interval."""
    delta, low, high = (signed(float(row[key]), digits) for key in (name, "ci_low", "ci_high"))
    return f"{delta} [{low}, {high}]"


def _with_best_bold(losses: Mapping[Key, float], keys: Iterable[Key]) -> list[str]:
    """Return a cell for each key: its loss, empty without one. The lowest is bold."""
    best = min(losses, key=losses.__getitem__)
    cells = {key: f"{loss:.3f}" for key, loss in losses.items()} | {best: f"**{losses[best]:.3f}**"}
    return [cells.get(key, "") for key in keys]


def _training_pairs(rows: Mapping[str, Line]) -> int:
    return int(next(iter(rows.values()))["train_pairs"])
