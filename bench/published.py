"""The tables of README.md and docs, written from the CSVs of bench/results: `python -m bench.published`.

A table is between `<!-- bench: NAME -->` and `<!-- end -->`, and is never edited by hand. Each line ends with the line
of the CSV that it comes from. `--check` changes nothing. It fails if a table differs from its CSV, or if a CSV is of an
older minor version.
"""

import argparse
import csv
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.output import RESULTS, ROOT, project_version
from bench.quality.systems import RECIPE_NAMES
from bench.train.contenders import OURS

DOCUMENTS = (
    *("README.md", "docs/speed.md", "docs/layouts.md", "docs/scaling.md", "docs/serve.md"),
    *("docs/scoring.md", "docs/decoding.md", "docs/cleaning.md", "docs/benchmarks.md"),
)
BLOCK = re.compile(r"(<!-- bench: (?P<name>[a-z ]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)

NOISE_METHODS = ("none", "rules", "dual", "rules and dual", "undamaged")  # in the order of the table

Line = dict[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.published", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where something would change")
    check = parser.parse_args().check
    problems = [*outdated(RESULTS)]
    for name in DOCUMENTS:
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        after = rendered(before)
        if check and after != before:
            problems.append(f"{name} differs from bench/results; run `python -m bench.published`")
        if not check:
            path.write_text(after, encoding="utf-8")
    print("\n".join(problems) or "all tables are those of bench/results", file=sys.stderr)
    return 1 if problems else 0


def outdated(results: Path) -> Iterator[str]:
    """Yield a sentence for each CSV with rows of an older minor version, or of code that was not committed."""
    minor = project_version().split(".")[:2]
    for path in sorted(results.glob("*.csv")):
        rows = read(path)
        versions = {row.get("version", "") for row in rows}
        if any(version.split(".")[:2] != minor for version in versions):
            yield f"{path.name} is of version {', '.join(sorted(versions)) or 'unknown'}; run the benchmark again"
        if any(row.get("commit", "").endswith("+") for row in rows):
            yield f"{path.name} has rows of code that was not committed; run the benchmark again"


def read(path: Path) -> list[Line]:
    """Read the rows of a CSV, each with its `line` in the file. The header is line 1."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{**row, "line": f"{number}"} for number, row in enumerate(csv.DictReader(file), start=2)]


def rendered(text: str) -> str:
    """Return the document with new tables. Raises KeyError for a table that is not in TABLES."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match["name"]](), text)


def measurements(benchmark: str, **conditions: str) -> Iterator[tuple[Path, Line]]:
    """Yield (file, row) of a benchmark's CSVs, machine after machine. conditions: values that columns must have."""
    for path in sorted(RESULTS.glob(f"{benchmark}-*.csv")):
        for row in read(path):
            if all(row[column] == value for column, value in conditions.items()):
                yield path, row


def markdown(header: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table with text in the first column and numbers in the others, or a sentence without rows."""
    if not lines:
        return "Not measured again since the rules above were made.\n"
    rule = ("---", *("---:",) * (len(header) - 1))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (header, rule, *lines))


def source(path: Path, row: Line) -> str:
    return f"{path.stem}:{row['line']}"


def number(value: str, digits: int = 0) -> str:
    """Return a number with so many decimals, or with none from 1,000 on. An empty text stays empty."""
    return f"{float(value):,.{digits if abs(float(value)) < 1000 else 0}f}" if value else ""


def percent(value: str) -> str:
    return f"{100 * float(value):.1f} %" if value else ""


def rate(row: Line, name: str = "tokens_per_second") -> str:
    """Return a median with its spread, or the note of a row without it."""
    return f"{number(row[name])} [{number(row['slowest'])}, {number(row['fastest'])}]" if row[name] else row["note"]


def verdict(row: Line) -> str:
    return f"{number(row['limit'], 2)}: {row['verdict']}" if row["limit"] else ""


def training() -> str:
    lines = []
    for path, row in measurements("train", section="mfu", processes="2"):
        size = f"{float(row['parameters']) / 1e6:.1f} M"
        shares = (percent(row["mfu"]), f"{float(row['useful']):.3f}", number(f"{1e3 * float(row['peak_tflops'])}"))
        lines.append((f"{row['model']}, {row['dtype']}", size, rate(row), *shares, source(path, row)))
    header = ("model", "parameters", "target tokens/s", "MFU", "useful / executed", "peak, GFLOP/s", "row")
    return markdown(header, lines)


def training_targets() -> str:
    """Return the table of the rows of our own training that have a target."""
    lines = []
    names = {"scaling": "two processes against one", "overhead": "outside forward, backward, step", "mfu": "MFU"}
    for section, name in names.items():
        for path, row in measurements("train", section=section, processes="2"):
            value = number(row["measured"], 3)
            lines.append((name, f"{row['model']}, {row['dtype']}", value, verdict(row), source(path, row)))
    return markdown(("what", "model", "measured", "target", "row"), [line for line in lines if line[2]])


def peers_in_training() -> str:
    lines = []
    for path, row in measurements("train", section="peers"):
        way = f"{row['processes']} x {row['threads']}"
        cells = (way, rate(row), number(row["measured"], 2), verdict(row), source(path, row))
        lines.append((f"{row['model']}: {row['variant']}", *cells))
    return markdown(("model and system", "processes x threads", "target tokens/s", "ours / it", "target", "row"), lines)


def decoding() -> str:
    lines = []
    for path, row in measurements("decode"):
        memory = f"{float(row['rss']) / 1e6:,.0f}" if row["rss"] else ""
        cells = (rate(row), number(row["measured"], 2), percent(row["identical"]), memory)
        lines.append((f"{row['model']}: {row['system']}, {row['precision']}", *cells, source(path, row)))
    return markdown(("model and system", "tokens/s", "ours / it", "identical", "peak MB", "row"), lines)


def choosing() -> str:
    """Return the table of ways to search and to choose, means over the pairs of a run."""
    lines = []
    rows = [*measurements("choice")]
    for path, way in dict.fromkeys((path, row["way"]) for path, row in rows):
        of_way = [row for other, row in rows if (other, row["way"]) == (path, way)]
        sentences, seconds = (sum(float(row[name]) for row in of_way) for name in ("sentences", "seconds"))
        scores = (
            number(f"{statistics.fmean(float(row[name]) for row in of_way)}", 1) for name in ("bleu", "chrf++", "ter")
        )
        numbers = ", ".join(row["line"] for row in of_way)
        lines.append((way, number(f"{sentences / seconds}", 1), *scores, f"{path.stem}:{numbers}"))
    return markdown(("way", "sentences/s", "BLEU", "chrF++", "TER", "rows"), lines)


def noise() -> str:
    """Return the table of what each cleaning removes of damaged rows, and of BLEU after training on what it leaves."""
    rows = [*measurements("noise")]
    kinds = [*dict.fromkeys(row["kind"] for _, row in rows if row["kind"])]
    lines = []
    for method in sorted({row["method"] for _, row in rows}, key=NOISE_METHODS.index):
        of_method = [(path, row) for path, row in rows if row["method"] == method]
        by_kind = {row["kind"]: row for _, row in of_method if row["kind"]}
        removed = [percent(by_kind[kind]["recall"]) if by_kind else "" for kind in kinds]
        precision = percent(by_kind["all"]["precision"]) if by_kind else ""
        bleu = ", ".join(number(row["bleu"], 1) for _, row in of_method if row["bleu"])
        numbers = ", ".join(row["line"] for _, row in of_method)
        lines.append((method, *removed, precision, bleu, f"{of_method[0][0].stem}:{numbers}"))
    return markdown(("cleaning", *kinds, "precision", "BLEU, by seed", "rows"), lines)


def peers() -> str:
    """Return how many times as fast as each peer ours is, in the comparison that is best for the peer."""
    best: dict[tuple[str, ...], tuple[Path, Line]] = {}
    for benchmark, task, columns in (
        ("train", "training", ("model", "dtype", "variant")),
        ("data", "", ("section", "variant")),
        ("decode", "decoding", ("model", "precision", "system")),
    ):
        for path, row in measurements(benchmark):
            key = (path.stem, task, *(row[column] for column in columns))
            if row.get("section", "peers") not in ("peers", "cleaning", "encoding") or key[-1].startswith("ours"):
                continue
            if row["measured"] and (key not in best or float(row["measured"]) < float(best[key][1]["measured"])):
                best[key] = (path, row)
    lines = [
        (", ".join(filter(None, names)), number(row["measured"], 2), source(path, row))
        for (_, *names), (path, row) in best.items()
    ]
    return markdown(("what, beside whom", "ours / it", "row"), lines)


def mixture_layer() -> str:
    """Return the table of the MoE layer against a dense layer and its peers."""
    lines = []
    for path, row in measurements("moe", section="layer"):
        if row["variant"] == "matmul":
            continue
        milliseconds = f"{number(row['ms'], 1)} [{number(row['ms_least'], 1)}, {number(row['ms_most'], 1)}]"
        cells = (milliseconds if row["ms"] else row["note"], number(row["to_dense"], 2), number(row["to_ours"], 2))
        targets = (verdict(row), number(row["extra_mb"]), source(path, row))
        size = f"E={row['experts']}, {row['dtype']}, {row['threads']} threads"
        lines.append((f"{size}: {row['variant']}", *cells, *targets))
    return markdown(("layer", "ms", "/ dense", "/ ours", "target", "extra MB", "row"), lines)


def data_stages() -> str:
    lines = []
    for path, row in measurements("data"):
        cells = (rate(row, "pairs_per_second"), number(row["measured"], 2), verdict(row), source(path, row))
        lines.append((f"{row['section']}: {row['variant']}, {row['threads']} threads", *cells))
    return markdown(("what", "pairs/s", "measured", "target", "row"), lines)


def serving() -> str:
    lines = []
    for path, row in measurements("serve"):
        waits = (number(row["ms"]), number(row["ms_99"]))
        cells = (row["batch"], rate(row, "requests_per_second"), *waits, number(row["gain"], 1), source(path, row))
        lines.append((f"{row['clients']}, {row['run']}", *cells))
    return markdown(("clients, run", "lines together", "requests/s", "ms", "ms, p99", "to one client", "row"), lines)


def layouts() -> str:
    lines = []
    for path, row in measurements("layout"):
        least, most = number(row["cpu_ratio_least"], 2), number(row["cpu_ratio_most"], 2)
        spread = f"{number(row['cpu_ratio'], 2)} [{least}, {most}]"
        cells = (number(row["cpu_ms"], 1), spread, number(row["wall_ratio"], 2), source(path, row))
        lines.append((f"{row['kind']}, {row['way']}", *cells))
    return markdown(("way", "processor time, ms", "ratio", "ratio by the clock", "row"), lines)


def planned() -> str:
    lines = []
    for path, row in measurements("plan"):
        settings = {"ep": "1", "mp": "1", "zero_stage": "1", "recompute": "none", "optimizer": "adamw"}
        sizes = f"d={row['dim']} {row['layers']}+{row['layers']} E={row['experts']}, world {row['world']}"
        name = ", ".join([sizes, *(f"{key} {row[key]}" for key, usual in settings.items() if row[key] != usual)])
        memory = f"{float(row['memory']) / 1e6:,.0f}; {float(row['memory_measured']) / 1e6:,.0f}"
        seconds = f"{number(row['seconds'], 2)}; {number(row['seconds_measured'], 2)}"
        ratios = number(row["memory_ratio"], 2), number(row["seconds_ratio"], 2)
        lines.append((name, memory, ratios[0], seconds, ratios[1], row["verdict"], source(path, row)))
    return markdown(("model", "peak MB", "", "s a step", "", "verdict", "row"), lines)


def identification() -> str:
    """Return the rates of the language that is called wrong most often, and the medians, on each kind of text."""
    path, rates = RESULTS / "identification.csv", ("judged", "wrong", "english_found", "others_found")
    lines = []
    for split, title in (("test", "software"), ("news", "news")):
        rows = [row for row in read(path) if (row["section"], row["split"]) == ("language", split)]
        worst = max(rows, key=lambda row: float(row["wrong"]))
        shares = (percent(worst[name]) for name in rates)
        lines.append((f"{title}, {worst['language']}", number(worst["sentences"]), *shares, source(path, worst)))
        medians = (statistics.median(float(row[name]) for row in rows if row[name]) for name in rates)
        lines.append((f"{title}, median of {len(rows)}", "", *(percent(f"{median}") for median in medians), ""))
    header = ("text", "sentences", "judged", "called wrong", "English found", "others found", "row")
    return markdown(header, lines)


def quality() -> str:
    """Return the table of BLEU after equal training time, systems in the order of the contest."""
    lines = []
    for path, row in measurements("quality"):
        name = OURS if row["system"] == OURS else f"{row['system']}, {RECIPE_NAMES[row['configuration']]}"
        interval = f"[{number(row['ci_low'], 1)}, {number(row['ci_high'], 1)}]" if row["bleu"] else row["note"]
        tokens = f"{float(row['target_tokens']) / 1e6:.1f}" if row["bleu"] else ""
        lines.append((name, number(row["minutes"]), number(row["bleu"], 1), interval, tokens, source(path, row)))
    return markdown(("system", "minutes", "BLEU", "95 %", "million target tokens", "row"), lines)


TABLES: dict[str, Callable[[], str]] = {
    "training": training,
    "training targets": training_targets,
    "peers in training": peers_in_training,
    "peers": peers,
    "decoding": decoding,
    "choosing": choosing,
    "noise": noise,
    "mixture layer": mixture_layer,
    "data": data_stages,
    "layouts": layouts,
    "planned": planned,
    "serving": serving,
    "identification": identification,
    "quality": quality,
}


if __name__ == "__main__":
    sys.exit(main())
