"""The long tests, and the hundred parts of them of which each CI run takes one (docs/testing.md).

long_seconds.json beside this file is their list. Every process of pytest must come to the same parts, so they follow
from it alone, not from what else is collected.
"""

import json
import re
from functools import cache
from pathlib import Path

import pytest

PARTS = 100
COLLECTED = pytest.StashKey[dict[str, set[str]]]()  # names of the long tests, by file, of all that pytest collected
MEASURED = Path(__file__).with_name("long_seconds.json")


@cache
def long_seconds() -> dict[str, float]:
    """Seconds of the long tests by node id, as `make test-full` prints them, with what they set up for themselves.

    All tests of a file that is named are long. They stay together, because they share what they set up.
    """
    seconds: dict[str, float] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return seconds


def long_name(node_id: str) -> str:
    """Return the name in `long_seconds` of a test or of its file; empty if the test is not long."""
    return next((name for name in (node_id, node_id.partition("::")[0]) if name in long_seconds()), "")


@cache
def parts_of_long_tests(parts: int = PARTS) -> dict[str, int]:
    """Parts, from 1, by name: the longest test first, each into the part with the least time so far."""
    filled = [0.0] * parts
    chosen = {}
    for test, seconds in sorted(long_seconds().items(), key=lambda item: (-item[1], item[0])):
        lightest = min(range(parts), key=filled.__getitem__)
        filled[lightest] += seconds
        chosen[test] = lightest + 1
    return chosen


def parse_part(text: str) -> tuple[int, int]:
    """Part and number of parts of `3/100`. Raises ValueError if there is no such part."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"--long-part={text} is no part; choose 1/{PARTS} to {PARTS}/{PARTS}")
    return int(match[1]), int(match[2])
