"""The part of the long tests that each CI run takes: every long test is in one part, and every part comes."""

import os
import re
import subprocess
import sys

import pytest

from pipeline.config import ROOT
from tests.rotation import COLLECTED, PARTS, long_name, long_seconds, parse_part, parts_of_long_tests

MOST_SECONDS = 360  # of a part, measured beside other work: that of the longest test; most parts need 140


def collected(*options):
    """Node ids of the tests that pytest would run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *options]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return {line for line in process.stdout.splitlines() if "::" in line}


def test_the_long_tests_are_those_of_the_list_and_the_nightly_one_of_the_page(request):
    """Only files that this run of pytest has collected whole are compared, so all of them where it runs the suite."""
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (marks,) = re.findall(r"^## What do the marks mean\?\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    nightly = set(re.findall(r"`(tests/[^`]+::[^`]+)`", marks))
    assert nightly
    partly = {argument.partition("::")[0] for argument in request.config.args if "::" in argument}
    for file, names in request.config.stash[COLLECTED].items():
        expected = {name for name in {*long_seconds(), *nightly} if name.partition("::")[0] == file}
        message = "a test was renamed or removed: correct tests/long_seconds.json"
        assert file in partly or names - {""} == expected, message
    gone = {name for name in {*long_seconds(), *nightly} if not (ROOT / name.partition("::")[0]).exists()}
    assert not gone, "a file was renamed or removed: correct tests/long_seconds.json"


def test_a_part_has_its_long_tests_and_all_that_are_not_long():
    files = ["tests/parallel/test_resume.py", "tests/system/test_scale.py"]  # with the nightly test
    parts, every = parts_of_long_tests(), ("-m", "long or not long", *files)
    tests = collected(*every)
    part = max(parts[test] for test in tests & parts.keys())
    every_night = collected("-m", "nightly", *files)
    expected = {test for test in tests - every_night if parts.get(long_name(test), part) == part}
    assert collected(*every, "--long-part", f"{part}/{PARTS}") == expected


def test_no_part_takes_longer_than_ci_has_time_for():
    filled = dict.fromkeys(range(1, PARTS + 1), 0.0)
    for test, part in parts_of_long_tests().items():
        filled[part] += long_seconds()[test]
    assert min(filled.values()) > 0
    assert max(filled.values()) <= MOST_SECONDS, filled


@pytest.mark.parametrize("wrong", ["3", "0/100", "101/100", "a/100", ""])
def test_a_part_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError, match="choose 1/100 to 100/100"):
        parse_part(wrong)


def test_a_hundred_runs_of_ci_take_all_hundred_parts(tmp_path):
    """With programs in place of make and of what .ci/run installs, which say how they were called."""
    for name in ("make", "chromium"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def part(**settings):
        command = [ROOT / ".ci/run"]
        process = subprocess.run(command, env={**environment, **settings}, capture_output=True, text=True, check=True)
        installed, checked, test = process.stdout.splitlines()
        assert installed == ".venv/.ready-dev .venv/.ready-docs"
        assert checked == "--jobs=2 --output-sync=target check docs"
        return parse_part(test.removeprefix("test LONG="))

    assert {part(CI_RUN=str(number)) for number in range(37, 137)} == {(k, PARTS) for k in range(1, PARTS + 1)}
    command = ["git", "rev-list", "--count", "--first-parent", "HEAD"]
    commits = int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert part(CI_RUN="") == (commits % PARTS + 1, PARTS)
