"""Language codes and pairs that are too long are refused before they cost time."""

import subprocess
import sys
import time

import pytest

from pipeline.config import ROOT
from pipeline.corpus.inference import infer_manifest
from pipeline.corpus.languages import LONGEST_PAIR, normalize_code, parse_pair, parse_pairs
from pipeline.corpus.sources.templates import named_pairs

CODES = [f"{first}{second}" for first in "abcdefghij" for second in "klmnopqrst"]  # 100, as a large corpus has


@pytest.mark.parametrize(
    "read", [lambda text: parse_pair(text, CODES), lambda text: parse_pairs(text, CODES), named_pairs]
)
def test_a_long_pair_is_refused_in_a_short_message(read):
    text = "ak-" * 2700
    start = time.thread_time()
    with pytest.raises(ValueError, match=f"has 8100 characters, and two codes have at most {LONGEST_PAIR}") as raised:
        read(text)
    assert time.thread_time() - start < 0.05
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("text", ["a-" * 32, "a-" * 64, "ak" * 64, f"{'a-' * 30}:{'b-' * 30}", "x" * 129])
def test_the_longest_pair_costs_little(text):
    start = time.thread_time()
    with pytest.raises(ValueError, match=r"the corpus has|and no pair"):
        parse_pair(text, CODES)
    assert time.thread_time() - start < 0.05


def test_a_long_code_is_refused():
    assert normalize_code("de" + "-1abc" * 12) == "de" + "-1abc" * 12  # 62 characters
    with pytest.raises(ValueError, match="is not of BCP-47 form"):
        normalize_code("de" + "-1abc" * 13)


def test_a_megabyte_takes_neither_time_nor_memory():
    """The pair is parsed by a process with little memory and time."""
    program = (
        "import resource\n"
        "from pipeline.corpus.languages import parse_pair\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
        "try:\n    parse_pair('a-' * 500_000, ['de', 'en'])\n"
        "except ValueError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "has 1000000 characters" in result.stdout, result.stderr[-500:]


def test_a_file_may_have_a_long_name_beside_its_pair(tmp_path):
    name = "a-" * 80 + ".de-en.tsv"
    (tmp_path / name).write_text("a\tb\n", encoding="utf-8")
    (entry,) = infer_manifest(tmp_path).files
    assert (entry.pair.name, entry.paths) == ("de-en", (name,))
