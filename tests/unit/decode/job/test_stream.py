"""Lines through real pipes and processes come out in order and as soon as possible."""

import os
import threading
import time
from queue import SimpleQueue

import pytest

from pipeline.decode.job import stream
from pipeline.decode.job.stream import LineReader, Stream
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from tests.unit.decode.conftest import DECODE
from tests.unit.decode.text.test_translator import LONG, TURKISH, lines, translate


def parse(number, content):
    return Line(text=content.decode(), target="en", number=number)


class Pipe:
    """A pipe to a stream in a thread, which collects the translations."""

    def __init__(self, pool, vocabulary):
        source, self.writing_end = os.pipe()
        self.translations, self.error = [], None
        self.arrival = threading.Condition()
        self.thread = threading.Thread(target=self._run, args=(source, pool, vocabulary))
        self.thread.start()

    def _run(self, source, pool, vocabulary):
        try:
            Stream(source, parse, self._write, pool, vocabulary.source_tokens).run()
        except Exception as error:  # noqa: BLE001 - raised in the test
            self.error = error
        os.close(source)

    def _write(self, translations):
        with self.arrival:
            self.translations += translations
            self.arrival.notify()

    def write(self, content):
        while content:
            content = content[os.write(self.writing_end, content) :]

    def wait(self, number):
        with self.arrival:
            assert self.arrival.wait_for(lambda: len(self.translations) >= number, timeout=60)

    def end(self):
        os.close(self.writing_end)
        self.thread.join(60)
        if self.error is not None:
            raise self.error
        return self.translations


def test_a_line_is_answered_before_the_next_is_written(pool, vocabulary):
    pipe = Pipe(pool, vocabulary)
    for number, text in enumerate(TURKISH[:4], start=1):
        pipe.write(text.encode() + b"\n")
        pipe.wait(number)
    pipe.write(TURKISH[4].encode())  # without a line feed
    time.sleep(0.05)
    assert len(pipe.translations) == 4
    assert len(pipe.end()) == 5


def test_windows_of_lines_come_out_in_order_whatever_ends_first(pool, model, vocabulary, monkeypatch):
    monkeypatch.setattr(stream, "WINDOW_LINES", 7)
    texts = [*TURKISH[:12], "", LONG, *TURKISH[12:], "", "a\u2028b\x85c\x0b\x00d\r"]
    expected = translate(Translator(model, vocabulary, DECODE, max_source_tokens=24), lines(*texts))
    pipe = Pipe(pool, vocabulary)
    pipe.write("".join(text + "\n" for text in texts).encode())
    assert [outcome.text for outcome in pipe.end()] == [outcome.text for outcome in expected]


def test_nothing_in_is_nothing_out(pool, vocabulary):
    assert Pipe(pool, vocabulary).end() == []


def test_a_line_that_cannot_be_read_ends_it_after_those_before(pool, vocabulary):
    pipe = Pipe(pool, vocabulary)
    pipe.write(TURKISH[0].encode() + b"\n\n\xff\n" + TURKISH[1].encode() + b"\n")
    with pytest.raises(UnicodeDecodeError):
        pipe.end()
    assert len(pipe.translations) == 2


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_an_end_is_refused_after_those_before(monkeypatch, end):
    monkeypatch.setattr(stream, "LINE_BYTES", 100)
    source, writing_end = os.pipe()
    changes = SimpleQueue()
    reader = LineReader(source, parse, lambda: changes.put(None))
    os.write(writing_end, b"\n" + b"a" * 100 + b"\n" + b"b" * 101 + end)  # the pipe stays open
    assert all(changes.get(timeout=20) is None for _ in range(3))  # for two lines and the error
    assert [line.text for line in reader.take()] == ["", "a" * 100]
    with pytest.raises(ValueError, match="line 3 of the input has more than 100 bytes"):
        reader.take()
    os.close(writing_end)
    os.close(source)


def test_no_more_is_read_than_has_room(monkeypatch):
    monkeypatch.setattr(stream, "WINDOW_LINES", 5)
    monkeypatch.setattr(stream, "_READ_BYTES", 64)
    source, writing_end = os.pipe()
    numbers = []

    def count(number, content):
        numbers.append(number)
        return parse(number, content)

    reader = LineReader(source, count, lambda: None)
    os.write(writing_end, b"line\n" * 100)
    os.close(writing_end)
    num_lines = 0
    while not reader.ended:
        window = reader.take()
        num_lines += len(window)
        assert len(window) <= 5
        time.sleep(0.001)
        assert len(numbers) <= num_lines + 2 * 5 + 1
    assert num_lines == 100
    os.close(source)
