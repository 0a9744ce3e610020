"""The time that bilingual models still need that train side by side, as the command and `make status` say."""

from pipeline.dag import baselines
from pipeline.dag.baselines import _Progress


class Listener:
    def __init__(self):
        self.messages = []

    def batch(self, what, *, num_done, total, seconds_left):
        self.messages.append((what, num_done, total, seconds_left))


def progress_of(monkeypatch, work, at_once):
    """Return the progress, what its listener is told, and a clock of one element that the test sets."""
    clock, listener = [0.0], Listener()
    monkeypatch.setattr(baselines.time, "monotonic", lambda: clock[0])
    return _Progress("models", work, at_once, listener), listener.messages, clock


def test_the_time_left_is_that_of_the_longest_line_of_models(monkeypatch):
    progress, messages, clock = progress_of(monkeypatch, {"large": 400, "b": 200, "c": 200, "d": 200}, at_once=2)
    for label in ("large", "b"):
        progress.begin(label)
    clock[0] = 200.0
    progress.end("b", 200.0, say=True)  # a second for each unit of work: `large` needs 200 more; c, then d, 400
    progress.begin("c")
    clock[0] = 400.0
    progress.end("large", 400.0, say=True)  # c is about to end
    progress.begin("d")
    clock[0] = 500.0
    progress.end("c", 300.0, say=True)  # later than was thought: 900 seconds for 800 units; d has had 100 of 225
    clock[0] = 600.0
    progress.end("d", 200.0, say=True)
    assert messages == [
        ("models", 1, 4, 400.0),
        ("models", 2, 4, 200.0),
        ("models", 3, 4, 125.0),
        ("models", 4, 4, 0.0),
    ]


def test_on_as_many_devices_as_models_the_largest_one_decides(monkeypatch):
    progress, messages, clock = progress_of(monkeypatch, {"large": 1000, "b": 100, "c": 100}, at_once=8)
    for label in ("large", "b", "c"):
        progress.begin(label)
    clock[0] = 50.0
    progress.end("c", 50.0, say=True)
    assert messages == [("models", 1, 3, 450.0)]  # not the sum of the work over the number of devices


def test_what_an_earlier_run_made_gives_the_pace_and_is_not_told(monkeypatch):
    progress, messages, _ = progress_of(monkeypatch, {"made": 100, "b": 100, "c": 100}, at_once=1)
    progress.begin("made")
    progress.end("made", 500.0, say=False)
    assert messages == []
    progress.begin("b")
    progress.end("b", 500.0, say=True)
    assert messages == [("models", 2, 3, 500.0)]
