"""Twenty parts of the long tests, one of which each CI run takes (docs/testing.md).

Every process of pytest must come to the same parts, so they follow from seconds.json beside this file and from the
test's own name, not from what else is collected.
"""

import json
import re
from functools import cache
from pathlib import Path
from zlib import crc32

PARTS = 20
DEFAULT_SECONDS = 20.0  # of a test that nobody has measured yet: the median of those that are
MEASURED = Path(__file__).with_name("long_seconds.json")


@cache
def measured_seconds() -> dict[str, float]:
    """Seconds by the test's node id, as `make test-full` prints them."""
    seconds: dict[str, float] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return seconds


@cache
def _measured_parts(parts: int) -> dict[str, int]:
    """Parts, from 1, of the measured tests: the longest test first, each into the part with the least time so far."""
    filled = [0.0] * parts
    chosen = {}
    for test, seconds in sorted(measured_seconds().items(), key=lambda item: (-item[1], item[0])):
        lightest = min(range(parts), key=filled.__getitem__)
        filled[lightest] += seconds
        chosen[test] = lightest + 1
    return chosen


def part_of(test: str, parts: int = PARTS) -> int:
    """The part, from 1, that runs a long test. test: its node id."""
    return _measured_parts(parts).get(test) or crc32(test.encode()) % parts + 1


def parse_part(text: str) -> tuple[int, int]:
    """Part and number of parts of `3/20`. Raises ValueError if there is no such part."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ValueError(f"--long-part={text} is no part; choose 1/{PARTS} to {PARTS}/{PARTS}")
    return int(match[1]), int(match[2])
