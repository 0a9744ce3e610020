"""What the processes of a job count is said as a whole, of one attempt."""

import logging

from pipeline.decode.drops import leave_drops, say_drops
from pipeline.jobs.launch import write_job
from pipeline.model.moe.drops import DropCount


class Choices:
    def __init__(self, asked, kept):
        self.asked, self.kept = asked, kept


def test_the_shares_of_all_processes_are_said_together(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write_job({}, tmp_path)
    say_drops(tmp_path, "translate")
    assert caplog.messages == []
    for rank, choices in enumerate([Choices(70, 60), Choices(30, 20), Choices(0, 0)]):
        drops = DropCount()
        drops.add(choices)
        leave_drops(drops, tmp_path, rank)
    say_drops(tmp_path, "translate")
    assert caplog.messages == ["translate: 20.0 % of 100 choices of experts dropped"]
    write_job({}, tmp_path)  # the next attempt
    say_drops(tmp_path, "translate")
    assert len(caplog.messages) == 1
