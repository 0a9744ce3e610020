"""Translation of lines in two steps through a third language, by one model. Free of torch."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from pipeline.decode.text.line import Line, Translated

Submit = Callable[[Sequence[Line]], "Future[list[Translated]]"]


def submit_steps(submit: Submit, lines: Sequence[Line]) -> "Future[list[Translated]]":
    """Let a pool translate lines, those with a pivot in two steps. Return a future of the translations in their order.

    The prefix of a line is one of its last step. A line that the first step skips, or translates to nothing, has no
    second one.
    submit: translates lines in one step, as `TranslatorPool.submit` does.
    """
    if not any(line.pivot for line in lines):
        return submit(lines)
    outcome: Future[list[Translated]] = Future()
    outcome.set_running_or_notify_cancel()  # nobody can cancel it between its steps

    def first_done(future: "Future[list[Translated]]") -> None:
        try:
            first = future.result()
            left = [index for index, line in enumerate(lines) if line.pivot and first[index].text]
            second = submit([_second_step(lines[index], first[index]) for index in left])
            second.add_done_callback(lambda future: second_done(future, first, left))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the outcome gets it
            outcome.set_exception(error)

    def second_done(future: "Future[list[Translated]]", first: Sequence[Translated], left: Sequence[int]) -> None:
        try:
            in_two_steps = {index: _both(first[index], last) for index, last in zip(left, future.result(), strict=True)}
            outcome.set_result([in_two_steps.get(index, only) for index, only in enumerate(first)])
        except BaseException as error:  # noqa: BLE001 - as above
            outcome.set_exception(error)

    submit([_first_step(line) for line in lines]).add_done_callback(first_done)
    return outcome


def _first_step(line: Line) -> Line:
    return replace(line, target=line.pivot, pivot="", prefix="") if line.pivot else line


def _second_step(line: Line, translated: Translated) -> Line:
    return replace(line, text=translated.text, source=line.pivot, pivot="")


def _both(first: Translated, last: Translated) -> Translated:
    return replace(last, pivot=first.text, cut=first.cut or last.cut)
