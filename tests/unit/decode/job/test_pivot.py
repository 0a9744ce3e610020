"""Lines in two steps: what each step gets, what comes out, and errors of both."""

from concurrent.futures import Future

import pytest

from pipeline.decode.job.pivot import submit_steps
from pipeline.decode.text.line import EMPTY, Alternative, Line, Translated

DIRECT = Line(text="a", source="de", target="en", prefix="x", number=0)
PIVOTED = Line(text="b", source="de", target="fr", pivot="en", prefix="y", number=1)
BLANK = Line(text=" ", source="de", target="fr", pivot="en", number=2)
NOTHING = Line(text="nothing", source="de", target="fr", pivot="en", number=2)
CUT = Line(text="long", source="de", target="fr", pivot="en", number=3)


class Recorder:
    """A pool that notes the lines of each call, and translates text into `text>target`."""

    def __init__(self, fails_at: int = -1) -> None:
        self.calls: list[list[Line]] = []
        self.fails_at = fails_at

    def submit(self, lines):
        future: Future[list[Translated]] = Future()
        self.calls.append(list(lines))
        if len(self.calls) - 1 == self.fails_at:
            future.set_exception(ValueError(f"step {self.fails_at}"))
        else:
            future.set_result([self._translate(line) for line in lines])
        return future

    def _translate(self, line):
        if not line.text.strip():
            return Translated(skipped=EMPTY)
        if line.text == "nothing":
            return Translated(alternatives=(Alternative(text="", score=-1.0),))
        cut = "split" if line.text == "long" else ""
        return Translated(alternatives=(Alternative(text=f"{line.text}>{line.target}", score=-1.0),), cut=cut)


def test_only_lines_with_a_pivot_have_a_second_step():
    pool = Recorder()
    outcome = submit_steps(pool.submit, [DIRECT, PIVOTED, BLANK, CUT]).result(timeout=1)
    assert [line.text for line in outcome] == ["a>en", "b>en>fr", "", "long>en>fr"]
    assert [line.pivot for line in outcome] == ["", "b>en", "", "long>en"]
    assert [(line.skipped, line.cut) for line in outcome] == [("", ""), ("", ""), (EMPTY, ""), ("", "split")]
    first, second = pool.calls
    assert [(line.target, line.prefix) for line in first] == [("en", "x"), ("en", ""), ("en", ""), ("en", "")]
    assert second == [
        Line(text="b>en", source="en", target="fr", prefix="y", number=1),
        Line(text="long>en", source="en", target="fr", number=3),
    ]


def test_a_line_that_the_first_step_translates_to_nothing_is_not_skipped():
    pool = Recorder()
    (line,) = submit_steps(pool.submit, [NOTHING]).result(timeout=1)
    assert (line.text, line.skipped, line.pivot) == ("", "", "")
    assert pool.calls[1] == []


def test_lines_in_one_step_are_submitted_as_they_are():
    pool = Recorder()
    assert submit_steps(pool.submit, [DIRECT]).result(timeout=1)[0].text == "a>en"
    assert pool.calls == [[DIRECT]]


@pytest.mark.parametrize("step", [0, 1])
def test_an_error_of_a_step_is_the_error_of_the_line(step):
    with pytest.raises(ValueError, match=f"step {step}"):
        submit_steps(Recorder(fails_at=step).submit, [PIVOTED]).result(timeout=1)
