"""A stop during a validation that translates: it ends without a score, and what was trained is saved."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pipeline.jobs.launch import launch
from pipeline.stopping import Stopped
from pipeline.train.config import CheckpointConfig
from pipeline.train.retention import MARKS
from tests.parallel.conftest import Outcome, make_job, step_name

SETTINGS = {"validate_metric": "chrf++", "validate_lines": 400, "log_every": 1}


def stop_in(place, prepared, directory, **changes):
    """Run two processes of which one is asked to stop in the first validation, after the first step of three."""
    job = make_job(prepared, directory, processes=2, ep=2, max_steps=3, validate_every=1, **changes)
    options = {"directory": directory / "log", "processes": 2, "threads": 1, "title": job.title}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BABELSHARD_STOP", place)
        patch.chdir(Path(__file__).resolve().parents[2])
        with pytest.raises(Stopped):
            launch("tests.parallel.stopped_translation_worker", asdict(job), **options)
    outcome = Outcome(directory)
    assert outcome.checkpoint().name == step_name(1)
    assert outcome.records("validation") == []
    return outcome


def test_a_stop_while_processes_translate_saves_the_step(prepared, run_job, tmp_path):
    """The next start begins with the validation that was stopped, as if nothing had happened."""
    checkpoints = CheckpointConfig(best_k=3)
    stopped = stop_in("translations", prepared, tmp_path, checkpoints=checkpoints, **SETTINGS)
    options = {"max_steps": 3, "validate_every": 1, "checkpoints": checkpoints, **SETTINGS}
    continued = run_job(processes=2, ep=2, into=stopped, **options)
    straight = run_job(processes=2, ep=2, **options)
    times = {"seconds", "translation_seconds"}
    records, expected = (
        [{k: v for k, v in record.items() if k not in times} for record in outcome.records("validation")]
        for outcome in (continued, straight)
    )
    assert records == expected
    assert [record["step"] for record in records] == [1, 2, 3]
    marks, expected_marks = (
        json.loads((o.directory / "checkpoints" / MARKS).read_text()) for o in (continued, straight)
    )
    assert marks == expected_marks
    usage, expected_usage = (np.load(o.directory / "log" / "routing.npz") for o in (continued, straight))
    for name in expected_usage.files:
        np.testing.assert_array_equal(usage[name], expected_usage[name])


def test_a_stop_while_a_command_scores_ends_the_command_and_saves_the_step(prepared, tmp_path):
    program, ready_file = tmp_path / "metric.py", tmp_path / "ready_file"
    program.write_text("import sys, time\nopen(sys.argv[1], 'w').close()\ntime.sleep(500)\n")
    settings = {"validate_metric": "comet", "validate_command": f"{sys.executable} {program} {ready_file}"}
    began = time.monotonic()
    stop_in("command", prepared, tmp_path / "run", **settings)
    assert ready_file.exists()
    assert time.monotonic() - began < 300
