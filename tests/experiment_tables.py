"""The rows of recipes/freesoft38, and the words of the pages on the experiment."""

import csv
import json
import re
from statistics import fmean

from eval.number_format import signed
from pipeline.config import ROOT


def rows_of(name):
    """The rows of a CSV beside the experiment's recipes."""
    with (ROOT / "recipes" / "freesoft38" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def contrast_rows(file, contrast, resource="all"):
    """Rows of a contrast by metric. file: their CSV."""
    return {row["metric"]: row for row in rows_of(file) if (row["contrast"], row["resource"]) == (contrast, resource)}


def losses_by_pair(metrics):
    """Training losses by pair, means of the last tenth, and those of the last validation. metrics: of metrics.jsonl."""
    events = [json.loads(line) for line in metrics.splitlines()]
    steps = [event["pairs"] for event in events if event["event"] == "train"]
    steps = steps[-(len(steps) // 10) :]
    training = {pair: fmean(step[pair] for step in steps if pair in step) for pair in steps[0]}
    return training, [event["pairs"] for event in events if event["event"] == "validation"][-1]


def interval(row, name="delta"):
    """A difference with its interval, as a page writes it."""
    delta, low, high = (signed(float(row[key]), 2) for key in (name, "ci_low", "ci_high"))
    return delta, f"[{low}, {high}]"


def words_of(*pages):
    """The text of pages in docs, with single spaces. pages: their names without `.md`."""
    texts = [(ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in pages]
    return re.sub(r"\s+", " ", "\n".join(texts))


def answers():
    """The table of answers in docs/experiment.md, with single spaces."""
    return words_of("experiment").partition("## What are the answers so far?")[2].partition("## ")[0]
