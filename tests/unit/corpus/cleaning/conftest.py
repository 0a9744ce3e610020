import csv
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[4] / "data" / "sample"
CODES = {"zh_CN": "zh-Hans", "zh_TW": "zh-Hant", "pt_BR": "pt-BR"}


@pytest.fixture(scope="session")
def held_out_texts() -> dict[str, list[str]]:
    """The texts of the test set of the sample, by BCP-47 code."""
    with (SAMPLE / "test.tsv").open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return {CODES.get(code, code): [row[i] for row in rows if row[i]] for i, code in enumerate(head)}
