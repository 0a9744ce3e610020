"""The rows of recipes/freesoft38, and the words of the pages on the experiment."""

import csv
import re

from eval.number_format import signed
from pipeline.config import ROOT


def rows_of(name):
    """The rows of a CSV beside the experiment's recipes."""
    with (ROOT / "recipes" / "freesoft38" / f"{name}.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def contrast_rows(file, contrast, resource="all"):
    """Rows of a contrast by metric. file: their CSV."""
    return {row["metric"]: row for row in rows_of(file) if (row["contrast"], row["resource"]) == (contrast, resource)}


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
