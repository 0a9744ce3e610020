"""The counts of all processes of a job's last attempt are logged as one sum."""

import logging

from pipeline.decode.job.drops import add_record, leave_drops, say_drops
from pipeline.jobs.launch import write_job
from pipeline.model.moe.drops import DropCount


def test_the_shares_of_all_processes_are_said_together(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_job({}, tmp_path)
    say_drops(tmp_path, "translate")
    assert caplog.messages == []
    for rank, record in enumerate([{"asked": 70, "kept": 60}, {"asked": 30, "kept": 20}, {"asked": 0, "kept": 0}]):
        drops = DropCount()
        add_record(drops, record)
        leave_drops(drops, tmp_path, rank)
    say_drops(tmp_path, "translate")
    assert caplog.messages == ["translate: 20.0 % of 100 choices of experts dropped"]
    write_job({}, tmp_path)  # the next attempt
    say_drops(tmp_path, "translate")
    assert len(caplog.messages) == 1
