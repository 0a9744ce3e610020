"""The tables of README.md and docs, written from CSVs: `python -m bench.published`.

The CSVs are in bench/results, and those of the experiment in recipes/freesoft38.

A table is between `<!-- bench: NAME -->` and `<!-- end -->`, and is never edited by hand. Each line ends with the line
of the CSV that it comes from. `--check` changes nothing. It fails if a table differs from its CSV, or if a CSV is of an
older minor version.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.output import RESULTS, ROOT, project_version
from bench.published import experiment, experts, quality, speed
from bench.published.cells import read

DOCUMENTS = (
    *("README.md", "docs/speed.md", "docs/layouts.md", "docs/scaling.md", "docs/serve.md"),
    *(
        "docs/scoring.md",
        "docs/decoding.md",
        "docs/cleaning.md",
        "docs/benchmarks.md",
        "docs/moe.md",
        "docs/fine-tuning.md",
        "docs/augmentation.md",
        "docs/experiment.md",
        "docs/experiment-mixtures.md",
        "docs/experiment-searches.md",
        "docs/zoo.md",
    ),
)
BLOCK = re.compile(r"(<!-- bench: (?P<name>[a-z ]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)


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
            problems.append(f"{name} differs from its CSV; run `python -m bench.published`")
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


def rendered(text: str) -> str:
    """Return the document with new tables. Raises KeyError for a table that is not in TABLES."""
    return BLOCK.sub(lambda match: match[1] + TABLES[match["name"]](), text)


TABLES: dict[str, Callable[[], str]] = {
    "training": speed.training,
    "training targets": speed.training_targets,
    "peers in training": speed.peers_in_training,
    "peers": speed.peers,
    "decoding": speed.decoding,
    "choosing": quality.choosing,
    "augmentation": quality.augmentation,
    "noise": quality.noise,
    "mixture layer": speed.mixture_layer,
    "mixtures": quality.mixtures,
    "extension": quality.extension,
    "data": speed.data_stages,
    "layouts": speed.layouts,
    "planned": speed.planned,
    "serving": speed.serving,
    "identification": quality.identification,
    "quality": quality.quality,
    "experiment rates": experiment.rates,
    "experiment systems": experiment.systems,
    "experiment costs": experiment.costs,
    "experiment tokens": experiment.tokens,
    "experiment gains": experiment.gains,
    "experiment ablations": experiment.ablations,
    "experiment scaling": experiment.scaling,
    "bilingual search": experiment.search,
    "experiment contrasts": experiment.contrasts,
    "model zoo": experiment.zoo,
    "experts": experts.experts,
}
