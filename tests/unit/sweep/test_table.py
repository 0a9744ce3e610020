"""The table of a sweep: in a file, on a real terminal, and as `make status` prints it."""

import io
import json
import logging
import os
import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from pipeline.dag.status import STATUS
from pipeline.dag.status_file import StatusFile, recorded
from pipeline.files import write_atomically
from pipeline.sweep.show import ShowConfig, find_points, load_show, show
from pipeline.sweep.table import SWEEP, Point, Standings, draw, live_table, load_points
from tests.screens import Screen

WIDE = 120


def points(tmp_path, *names, flops=1000.0):
    return [Point(id=name, directory=tmp_path / name, flops=flops) for name in names]


def save_points(directory, *names):
    entries = [{"id": name, "directory": name, "role": "asked", "flops": 1000.0} for name in names]
    (directory / SWEEP).write_text(json.dumps({"name": "x", "points": entries}))


def write_status(tmp_path, name, state, *, seconds=3600, stages=(), error=""):
    """As a command that began an hour ago on another host would."""
    (tmp_path / name).mkdir(exist_ok=True)
    StatusFile(tmp_path / name)
    record = json.loads((tmp_path / name / STATUS).read_text())
    began = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    entries = [
        {
            "title": title,
            "state": how,
            "started": began,
            "seconds": None if how in ("running", "waiting") else float(seconds),
            "directory": str(tmp_path / f"{name} {title}"),
            "resumed_at": 0.0,
        }
        for title, how in stages
    ]
    record |= {"state": state, "host": "another", "started": began, "stages": entries, "error": error}
    (tmp_path / name / STATUS).write_text(json.dumps(record))


def train(tmp_path, name, share):
    """Write the records of a training that has done a share of its budget."""
    log = tmp_path / f"{name} train moe.partial" / "log"
    log.mkdir(parents=True, exist_ok=True)
    write_atomically(log / "job.json", json.dumps({"train": {"max_steps": 0, "max_tokens": 1000}}))
    record = {"event": "train", "step": 9, "target_tokens": 1000 * share, "cross_entropy": 4.321, "seconds": 0.2}
    write_atomically(log / "metrics.jsonl", json.dumps(record) + "\n")  # a table may read it at this moment


@pytest.fixture
def sweep(tmp_path):
    """One is done, one trains, one failed, one is not begun."""
    write_status(tmp_path, "dense", "done", stages=[("train moe", "done")])
    write_status(tmp_path, "moe_8e", "running", stages=[("train moe", "running")])
    train(tmp_path, "moe_8e", 0.5)
    write_status(tmp_path, "moe_9e", "failed", error="model.moe.num_experts=9 is not even; choose 8")
    return points(tmp_path, "dense", "moe_8e", "moe_9e", "moe_32e")


def test_points_are_found_again_where_the_sweep_was_moved_to(tmp_path):
    (tmp_path / "here").mkdir()
    save_points(tmp_path / "here", "a", "b")
    (tmp_path / "here").rename(tmp_path / "there")
    assert load_points(tmp_path / "there") == points(tmp_path / "there", "a", "b")


def test_a_row_says_where_a_point_stands(sweep):
    lines = draw(Standings(sweep)(), width=WIDE)
    cells = [re.split(r"\s{2,}", line) for line in lines]
    assert cells[0] == ["id", "state", "stage", "%", "loss", "tokens/s", "elapsed", "ETA"]
    assert (cells[1][:-1], *hours(cells[1][-1:])) == (["dense", "done"], 1)
    assert cells[2][:-2] == ["moe_8e", "running", "train moe", "50", "4.32", "2,500"]
    # an hour for its one half; of the others, a thousand FLOPs at the pace of 1500 in two hours
    assert hours(cells[2][-2:]) == [1, 1]
    assert cells[3][:-2] == ["moe_9e", "failed", "model.moe.num_experts=9 is not even; choose 8"]
    assert hours(cells[3][-2:]) == [1, 4 / 3]
    assert (cells[4][:-1], *hours(cells[4][-1:])) == (["moe_32e", "waiting"], 4 / 3)
    assert lines[-1].startswith("1 done, 1 failed, 1 running, 1 waiting; about 3 h 40 min left, until ")
    ends = [
        line.rindex(cell) + len(cell)
        for line, cell in ((lines[0], "ETA"), *((row, row.split()[-1]) for row in lines[2:5]))
    ]
    assert len(set(ends)) == 1, "numbers are aligned to the right"


def hours(texts):
    """Return the hours of texts h:mm:ss, which are off by the seconds that a test takes."""
    seconds_shown = [
        sum(int(part) * 60**power for power, part in enumerate(reversed(text.split(":")))) for text in texts
    ]
    return [pytest.approx(seconds / 3600, abs=0.02) for seconds in seconds_shown]


def test_two_at_once_halve_the_time_left(sweep):
    assert "about 2 h 20 min left" in draw(Standings(sweep)(), width=WIDE, at_once=2)[-1]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal_and_the_stage_gives_way_first(sweep, width):
    lines = draw(Standings(sweep)(), width=width)
    assert max(map(len, lines)) <= width
    assert ("num_experts=9 is not" in lines[3]) == (width == 100)
    if width >= 80:
        assert hours(lines[2].split()[-1:]) == [1]


def test_points_that_do_not_run_give_way_on_a_low_terminal(sweep):
    lines = draw(Standings(sweep)(), width=WIDE, height=5)
    assert len(lines) == 5
    assert [line.split()[0] for line in lines[1:3]] == ["moe_8e", "moe_9e"]
    assert lines[3] == "and 2 more: 1 done, 1 waiting"


def test_what_is_trained_side_by_side_has_a_row_each(tmp_path):
    stages = [("train moe", "done"), ("train bilingual de-en", "running"), ("clean tr-en", "waiting")]
    write_status(tmp_path, "demo", "running", stages=stages)
    lines = draw(Standings(points(tmp_path, "demo"))(), width=WIDE)
    assert [re.split(r"\s{2,}", line)[1:-2] for line in lines[1:3]] == [
        ["running", "train bilingual de-en"],
        ["waits for clean tr-en"],
    ]


def test_what_was_stopped_says_how_far_it_came(tmp_path):
    write_status(tmp_path, "moe_8e", "stopped", stages=[("clean de-en", "done"), ("train moe", "stopped")])
    train(tmp_path, "moe_8e", 0.25)
    lines = draw(Standings(points(tmp_path, "moe_8e"))(), width=WIDE)
    # a quarter of its FLOPs took an hour
    cells = re.split(r"\s{2,}", lines[1])
    assert cells[:4] == ["moe_8e", "stopped", "train moe", "25"]
    assert hours(cells[-2:]) == [1, 3]


def test_how_many_baselines_are_done_comes_first(tmp_path):
    with recorded(tmp_path / "demo") as status:
        status.batch("bilingual models", num_done=3, total=12, seconds_left=400.0)
        status.stage("train bilingual de-en", "running", tmp_path / "none")
        lines = draw(Standings(points(tmp_path, "demo", flops=0.0))(), width=WIDE)
    first, second = (re.split(r"\s{2,}", line) for line in lines[1:3])
    assert first[:4] == ["demo", "running", "3 of 12 bilingual models", "25"]
    assert hours(first[-1:]) == [400 / 3600]
    assert second[1] == "train bilingual de-en"
    assert "about 6 min 40 s left" in lines[-1] or "about 6 min 3" in lines[-1]


def test_what_fails_while_the_table_is_shown_is_given_up_and_its_results_may_be_exchanged(sweep, tmp_path):
    standings = Standings(sweep)
    assert not standings()[2].given_up
    write_status(tmp_path, "moe_9e", "failed", error="again")
    (tmp_path / "dense" / STATUS).unlink()
    seconds_shown = standings()
    assert seconds_shown[2].given_up
    assert seconds_shown[0].state == "done"


def test_in_a_file_each_change_of_state_is_a_line(tmp_path):
    out = io.StringIO()
    with live_table(points(tmp_path, "a", "b"), out, interval=0.01) as say:
        wait_for(out, lambda text: True)
        with recorded(tmp_path / "a"):
            wait_for(out, lambda text: "a: running\n" in text)
        say("the report is written")
        wait_for(out, lambda text: "a: done" in text)

        def fail(status):
            status.stage("clean de-en", "running", tmp_path / "none")
            raise ValueError("x=1 is wrong")

        with pytest.raises(ValueError, match="wrong"), recorded(tmp_path / "b") as status:
            fail(status)
        wait_for(out, lambda text: "b: failed" in text)
    lines = [re.sub(r"\d:\d\d", "0:00", line) for line in out.getvalue().splitlines()]
    changes = ["a: running", "the report is written", "a: done after 0:00", "b: failed after 0:00: x=1 is wrong"]
    assert sorted(set(changes) - set(lines)) == []
    assert len([line for line in lines if line.startswith(("a:", "b:"))]) == 3 + ("b: running" in lines)
    assert [line.split()[0] for line in lines[-4:]] == ["id", "a", "b", "1"]


def test_in_a_file_the_table_comes_now_and_then(tmp_path):
    out = io.StringIO()
    with live_table(points(tmp_path, "a"), out, interval=0.01, every=0.05):
        wait_for(out, lambda text: text.count("elapsed") >= 2)
    with live_table(points(tmp_path, "a"), out := io.StringIO(), interval=0.01):
        time.sleep(0.1)
    assert out.getvalue().count("elapsed") == 1, "at the end"


def wait_for(out, condition):
    deadline = time.monotonic() + 20
    while not condition(out.getvalue()):
        assert time.monotonic() < deadline, out.getvalue()
        time.sleep(0.01)


def test_on_a_terminal_it_is_redrawn_in_place(sweep, tmp_path):
    screen = Screen(80, 24)
    with os.fdopen(screen.theirs, "w") as out:
        handler = logging.StreamHandler(out)
        logging.getLogger().addHandler(handler)
        try:
            with live_table(sweep, out, interval=0.01) as say:
                say("a line above")
                time.sleep(0.2)
                train(tmp_path, "moe_8e", 0.75)
                time.sleep(0.2)
                logging.getLogger("x").warning("another one, logged")
        finally:
            logging.getLogger().removeHandler(handler)
        assert handler.stream is out
    screen.close()
    rows = screen.rows()
    assert rows[:2] == ["a line above", "another one, logged"]
    assert [row.split()[0] for row in rows[2:]] == ["id", "dense", "moe_8e", "moe_9e", "moe_32e", "1"]
    assert " 75 " in rows[4]
    assert max(map(len, rows)) < 80


def test_a_table_that_cannot_be_drawn_ends_alone(tmp_path, caplog):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / STATUS).write_text("{}")
    with live_table(points(tmp_path, "a"), out := io.StringIO(), interval=0.01) as say:
        say("the sweep goes on")
    assert out.getvalue() == "the sweep goes on\n"
    assert "the table ends here" in caplog.text


@pytest.mark.parametrize("file_name", ["sweep.json", "status.json"])
def test_status_finds_a_sweep_by_its_points_or_their_status(tmp_path, sweep, file_name, capsys):
    if file_name == "sweep.json":
        save_points(tmp_path, *(point.id for point in sweep))
    show(ShowConfig(run=tmp_path.name, watch=False, runtime=load_show([f"runtime.runs={tmp_path.parent}"]).runtime))
    output = capsys.readouterr().out
    assert ("moe_32e" in output) == (file_name == "sweep.json")
    assert "moe_8e" in output
    assert "train moe" in output


def test_status_of_one_run_and_of_none(tmp_path):
    write_status(tmp_path, "mine", "done")
    assert find_points("mine", tmp_path) == points(tmp_path, "mine", flops=0.0)
    with pytest.raises(ValueError, match=r"NAME=mien: .* so nothing was begun; did you mean mine\?"):
        find_points("mien", tmp_path)


def test_watching_ends_when_all_is_done(tmp_path, capsys):
    write_status(tmp_path, "mine", "done")
    show(load_show(["run=mine", "watch=true", f"runtime.runs={tmp_path}"]))
    assert "mine  done" in capsys.readouterr().out
