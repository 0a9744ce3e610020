"""Noise that cleaning finds: `python -m bench.data.noise`, with `--train` also what it is worth in BLEU.

Rows that pass all rules are the clean text. A share of them is damaged, in equal parts misaligned, in a wrong language,
truncated or copied. Each method cleans the damaged text, and what it removes is counted. `rules and dual` removes as
many rows as were damaged: the rules take their part, small models the rest.
"""

import argparse
import csv
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.data.corpus import SAMPLE, read_text
from bench.data.injection import KINDS, inject
from bench.data.injection import Row as Damaged
from bench.output import Row, aligned, device_name, number, percent, portable, results_file, write_csv
from eval.records.run_record import read_translations
from eval.score.metrics import scorer_for
from pipeline.config import ROOT, RunConfig, load_config
from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.cleaning.codepoints import Texts
from pipeline.corpus.config import Rules
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.baseline_search import seconds
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.learned_checks import check_learned
from pipeline.dag.learned_cleaning import without_worst
from pipeline.dag.run import train_run
from pipeline.dag.store import Store

COLUMNS = (
    *("device", "text", "rows", "noise", "method", "remove", "learned", "kind", "injected", "removed", "recall"),
    *("precision", "seconds", "recipe", "seed", "bleu", "command"),
)
NONE, RULES, DUAL, TOGETHER, CLEAN = "none", "rules", "dual", "rules and dual", "undamaged"
METHODS = (RULES, DUAL, TOGETHER)
TRAINED = (NONE, RULES, TOGETHER, CLEAN)
ALL = "all"
RULES_OFF = [f"corpus.rules.{rule.name}=null" for rule in fields(Rules)]
NOTE = (
    "The undamaged rows pass all rules by construction: the rules have no precision here, and that of 'rules and dual' "
    "gains from it.\nThe share that small models remove is the known share of the noise; a real text does not tell it."
)
QUICK = "dim: 16, ffn_dim: 16, heads: 2, layers: 1, vocab_size: 400, max_tokens: 2000"

Splits = Mapping[str, Sequence[tuple[str, str]]]  # rows by split


@dataclass(frozen=True, kw_only=True)
class Place:
    """The directory of the work, and the settings of all configurations. root: corpora, artifacts and runs."""

    root: Path
    pair: LangPair
    recipe: str
    overrides: Sequence[str]

    def config(self, corpus: str, *overrides: str) -> RunConfig:
        """Return the configuration of a run on one of the corpora."""
        words = [f"recipes={self.recipe}", f"corpus={self.root / corpus}", f"pairs=[{self.pair.name}]"]
        words += [f"runtime.{name}={self.root / name}" for name in ("artifacts", "runs")]
        return load_config([*words, "baselines=none", *self.overrides, *overrides])

    def write(self, corpus: str, texts: Splits) -> None:
        """Write a corpus of plain files."""
        directory = self.root / corpus
        directory.mkdir(exist_ok=True)
        for split, rows in texts.items():
            for side, code in enumerate((self.pair.src, self.pair.tgt)):
                path = directory / f"{split}.{self.pair.src}-{self.pair.tgt}.{code}"
                path.write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")


def main() -> int:
    options = parse()
    name = device_name("cpu")
    out = results_file("noise", name, options.out)
    learned = options.learned or (QUICK if options.quick else "")
    about = {"device": name, "text": str(options.text or "sample"), "noise": options.noise, "learned": learned}
    about["command"] = shlex.join(["python", "-m", "bench.data.noise", *portable(sys.argv[1:])])
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-noise-") as directory:
        root = Path(options.work or directory).absolute()
        root.mkdir(parents=True, exist_ok=True)
        pair, texts, foreign = read(options.text, options.foreign, 400 if options.quick else options.rows)
        place = Place(root=root, pair=pair, recipe=options.recipe, overrides=options.overrides)
        for row in measure(place, texts, foreign, options, learned):
            rows.append({**about, **row})
            write_csv(rows, COLUMNS, out)
            print(progress(row), file=sys.stderr, flush=True)
    print(f"Noise in {about['text']} on {name}\n\n{table(rows)}\n\n{NOTE}\n\nwritten to {out}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.data.noise", description="Noise that cleaning finds.")
    parser.add_argument("--quick", action="store_true", help="few rows and tiny models: does it run?")
    parser.add_argument("--text", type=Path, help="TSV of a pair, such as de-en.tsv.xz; default: de-en of data/sample")
    parser.add_argument("--foreign", type=Path, help="lines in a third language; default: French of data/sample")
    parser.add_argument("--rows", type=int, default=1_000_000, help="most rows")
    parser.add_argument("--noise", type=float, default=0.2, help="share of the rows that is damaged")
    parser.add_argument("--seed", type=int, default=1, help="decides which rows are damaged")
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--learned", default="", help='settings of corpus.learned, such as "max_tokens: 400000"')
    parser.add_argument("--train", nargs="*", choices=TRAINED, default=(), help="methods whose rows train a model")
    parser.add_argument("--seeds", type=int, nargs="+", default=(1, 2), help="of each of these trainings")
    parser.add_argument("--recipe", default="demo", help="recipe of these trainings, without experts and baselines")
    parser.add_argument(
        "--overrides", nargs="*", default=(), help="further settings of all runs, as train.max_tokens=…"
    )
    parser.add_argument("--work", type=Path, help="directory that keeps corpora, artifacts and runs; default: none")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for noise-<device>.csv; default bench/results")
    return parser.parse_args()


def read(text: Path | None, foreign: Path | None, rows: int) -> tuple[LangPair, Splits, list[str]]:
    """Return the pair, its rows by split, and texts in a third language."""
    french = [line["fr"] for line in _sample("train")]
    lines = foreign.read_text(encoding="utf-8").splitlines() if foreign else french
    lines = [line for line in Texts.normalized(pa.array(lines)).array.to_pylist() if line]
    if text is None:
        by_split = {split: [(r["de"], r["en"]) for r in _sample(split)] for split in ("train", "dev", "test")}
        texts = {split: [row for row in split_rows if all(row)] for split, split_rows in by_split.items()}
        return LangPair("de", "en"), {**texts, "train": texts["train"][:rows]}, lines
    content = read_text(text, rows)
    tables = {"train": content.train, **content.held_out}
    sides = {split: [table[side].to_pylist() for side in ("src", "tgt")] for split, table in tables.items()}
    return content.pair, {split: list(zip(*columns, strict=True)) for split, columns in sides.items()}, lines


def measure(
    place: Place, texts: Splits, foreign: Sequence[str], options: argparse.Namespace, learned: str
) -> Iterator[dict[str, Any]]:
    """Yield a row for each method and kind of noise, then one for each training."""
    place.write("read", texts)
    sound, _ = cleaned_rows(place.config("read"))
    place.write(CLEAN, {**texts, "train": sound})
    damaged = inject(sound, foreign, options.noise, options.seed)
    place.write("damaged", {**texts, "train": [row[:2] for row in damaged]})
    shares = {DUAL: options.noise, TOGETHER: 0.0}
    wanted_methods = {*options.methods, *({TOGETHER} & {*options.train})}
    for method in (RULES, DUAL, TOGETHER):
        if method not in wanted_methods and not (method == RULES and TOGETHER in wanted_methods):
            continue
        rows, duration = cleaned_rows(place.config("damaged", *overrides_of(method, shares, learned)))
        if method == RULES:
            removed = len(damaged) - len(rows)
            shares[TOGETHER] = max(0.0, (options.noise * len(damaged) - removed) / len(rows))
        for row in judge(damaged, rows):
            about = {"rows": len(damaged), "method": method, "remove": shares.get(method), "seconds": duration}
            yield {**about, **row, **({"precision": None} if method == RULES else {})}
    for method in options.train:
        for seed in options.seeds:
            corpus = CLEAN if method == CLEAN else "damaged"
            words = [f"train.seed={seed}", "model.moe.num_experts=0", f"name=noise-{method.replace(' ', '-')}-{seed}"]
            bleu = trained_bleu(place.config(corpus, *overrides_of(method, shares, learned), *words), place.pair)
            about = {"rows": len(damaged), "method": method, "remove": shares.get(method), "recipe": place.recipe}
            yield {**about, "seed": seed, "bleu": bleu}


def overrides_of(method: str, shares: Mapping[str, float], learned: str) -> list[str]:
    """Return the settings of cleaning by a method."""
    words = RULES_OFF if method in (NONE, DUAL, CLEAN) else []
    if method not in shares:
        return words
    return [*words, f"corpus.learned={{kind: dual, remove: {shares[method]:.6f}{', ' if learned else ''}{learned}}}"]


def cleaned_rows(config: RunConfig) -> tuple[list[tuple[str, str]], float]:
    """Return the training rows that a configuration keeps, and the seconds that all stages behind them took."""
    store, data = Store(ROOT / config.runtime.artifacts), config.runtime.data
    corpus = prepare_corpus(config.corpus, config.pairs, store, data)
    scores = check_learned(config.corpus.learned, store, corpus)
    cleaned: dict[LangPair, Artifact] = {pair: clean(config.corpus, store, corpus, pair, data) for pair in corpus.pairs}
    (artifact,) = without_worst(config, store, cleaned, scores).values()
    batches = iter_bitext(artifact.path, "train")
    sides = (zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True) for batch in batches)
    return [row for rows in sides for row in rows], total_seconds(store, artifact)


def total_seconds(store: Store, artifact: Artifact) -> float:
    """Return how long making an artifact and all that it is made of took, whenever and by whatever command."""
    needed: set[Artifact] = set()
    waiting = [artifact]
    while waiting:
        if (one := waiting.pop()) not in needed:
            needed.add(one)
            waiting += store.inputs(one).values()
    return sum(seconds(one) for one in needed)


def judge(damaged: Sequence[Damaged], kept: Sequence[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each kind of noise, and one for all kinds, which has the precision too."""
    left = Counter(kept)
    injected, removed, num_removed = Counter(row.kind for row in damaged), Counter[str](), 0
    for row in damaged:
        if left[row[:2]]:
            left[row[:2]] -= 1
        else:
            num_removed += 1
            removed[row.kind] += 1
    assert not left.total(), "every kept row is one of the damaged text"
    noise = {kind: (injected[kind], removed[kind]) for kind in KINDS}
    noise[ALL] = (sum(injected[kind] for kind in KINDS), sum(removed[kind] for kind in KINDS))
    for kind, (there, gone) in noise.items():
        precision = gone / num_removed if kind == ALL and num_removed else None
        yield {"kind": kind, "injected": there, "removed": gone, "recall": gone / there, "precision": precision}


def trained_bleu(config: RunConfig, pair: LangPair) -> float:
    """Train a model on the rows that a configuration keeps, and return the BLEU of its translations of the test set."""
    directory = train_run(config)
    sentences = read_translations(directory / "translations" / "moe" / f"{pair.name}.jsonl")
    references = [[sentence.reference for sentence in sentences]]
    score = scorer_for("bleu", pair.tgt).corpus_score([sentence.hypothesis for sentence in sentences], references)
    return float(score.score)


def table(rows: Sequence[Row]) -> str:
    """Return a table of what was removed, and one of the trainings if there are some."""
    lines = [["method", "kind", "injected", "removed", "recall %", "precision %"]]
    for row in rows:
        if "kind" in row:
            counts = [
                number(row["injected"]),
                number(row["removed"]),
                percent(row["recall"]),
                percent(row["precision"]),
            ]
            lines.append([row["method"], row["kind"], *counts])
    trained = [["method", "seed", "BLEU"]]
    trained += [[row["method"], str(row["seed"]), number(row["bleu"], 2)] for row in rows if "bleu" in row]
    tables = [table_lines for table_lines in (lines, trained) if len(table_lines) > 1]
    return "\n\n".join(aligned(table_lines, left=("method", "kind")) for table_lines in tables)


def progress(row: Row) -> str:
    """Return one line on a measured row."""
    if "bleu" in row:
        return f"{row['method']} seed {row['seed']}: BLEU {row['bleu']:.2f}"
    return f"{row['method']}: {row['removed']} of {row['injected']} {row['kind']} removed"


def _sample(split: str) -> list[dict[str, str]]:
    with (SAMPLE / f"{split}.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


if __name__ == "__main__":
    sys.exit(main())
