"""The twentieth of the long tests that each CI run takes: every long test is in one part, and every part comes."""

import os
import re
import subprocess
import sys

import pytest

from pipeline.config import ROOT
from tests.rotation import DEFAULT_SECONDS, PARTS, measured_seconds, parse_part, part_of

MOST_SECONDS = 360  # of a part, measured beside other work: that of the longest test; most parts need 270
TESTING = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def collected(*options):
    """Node ids of the tests that pytest would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *options]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return {line for line in process.stdout.splitlines() if "::" in line}


@pytest.fixture(scope="module")
def long_tests():
    return collected("-m", "long")


@pytest.fixture(scope="module")
def nightly():
    """Names of the tests that only `make test-full` runs, as docs/testing.md lists them."""
    (marks,) = re.findall(r"^## What do the marks mean\?\n(.*?)^## ", TESTING, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(tests/[^`]+::[^`]+)`", marks))


def test_the_parts_hold_every_long_test_once_but_those_of_the_list(long_tests, nightly):
    tests = collected("-m", "long", "--long-part", "3/20")
    assert tests == {test for test in long_tests - nightly if part_of(test) == 3}
    assert nightly < long_tests
    assert {part_of(test) for test in long_tests} == set(range(1, PARTS + 1))


def test_no_part_takes_longer_than_ci_has_time_for(long_tests, nightly):
    seconds = measured_seconds()
    assert set(seconds) <= long_tests - nightly, "a test was renamed or removed: correct tests/long_seconds.json"
    filled = dict.fromkeys(range(1, PARTS + 1), 0.0)
    for test in long_tests - nightly:
        filled[part_of(test)] += seconds.get(test, DEFAULT_SECONDS)
    assert max(filled.values()) <= MOST_SECONDS, filled


@pytest.mark.parametrize("wrong", ["3", "0/20", "21/20", "a/20", ""])
def test_a_part_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError, match="choose 1/20 to 20/20"):
        parse_part(wrong)


def test_twenty_runs_of_ci_take_all_twenty_parts(tmp_path):
    """With programs in place of make and of what .ci/run installs, which say how they were called."""
    for name in ("make", "chromium"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def part(**settings):
        command = [ROOT / ".ci/run"]
        process = subprocess.run(command, env={**environment, **settings}, capture_output=True, text=True, check=True)
        check, docs, test = process.stdout.splitlines()
        assert (check, docs) == ("check", "docs")
        return parse_part(test.removeprefix("test LONG="))

    assert {part(CI_RUN=str(number)) for number in range(37, 57)} == {(k, PARTS) for k in range(1, PARTS + 1)}
    command = ["git", "rev-list", "--count", "--first-parent", "HEAD"]
    commits = int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert part(CI_RUN="") == (commits % PARTS + 1, PARTS)
