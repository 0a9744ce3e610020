"""Names of files and answers of servers with control sequences of a terminal are shown as text."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eval.__main__ import main
from eval.terminal import printable
from pipeline import ending
from pipeline.corpus.inference import infer_manifest
from pipeline.corpus.sources.download import Patience, download
from tests.unit.corpus.sources.serving import QuietHandler, serving

FORGED = "\x1b[2J\x1b]0;owned\x07\r\x9b31m"


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Return a function that ends a command by an error, as the command line does."""
    monkeypatch.setattr(ending, "stop_all", lambda: None)

    def end(error: BaseException) -> int:
        def fail() -> None:
            raise error

        return ending.run_to_end(fail)

    return end


def test_names_of_files_reach_the_terminal_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: Callable[[BaseException], int]
) -> None:
    (tmp_path / f"{FORGED}.txt").write_text("")
    with pytest.raises(ValueError, match="has a name that says neither") as caught:
        infer_manifest(tmp_path)
    assert end(caught.value) == 1
    assert main(["report", str(tmp_path / FORGED)]) == 2
    written = capsys.readouterr().err
    assert written.count("\\x1b[2J\\x1b]0;owned\\x07\\x0d\\x9b31m") >= 2
    assert not set("\x1b\x07\r\x9b") & set(written)


def test_reasons_of_servers_reach_the_terminal_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: Callable[[BaseException], int]
) -> None:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(404, "\x1b[2J\x1b]0;owned\x07")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving(Handler) as url, pytest.raises(ValueError, match="answered 404") as caught:
        download(f"{url}/a", tmp_path / "a", patience=Patience(attempts=1))
    assert end(caught.value) == 1
    written = capsys.readouterr().err
    assert "answered 404 (\\x1b[2J\\x1b]0;owned\\x07)" in written
    assert "\x1b" not in written


def test_log_records_reach_the_terminal_as_text() -> None:
    program = (
        "import logging\nfrom eval.terminal import log_to_terminal\nlog_to_terminal()\n"
        f"logging.getLogger('a').warning('b\\tc\\n%s', {FORGED!r})"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, cwd=root)
    assert result.stderr == b"b\tc\n\\x1b[2J\\x1b]0;owned\\x07\\x0d\\x9b31m\n"


def test_other_text_does_not_change() -> None:
    text = "Zeile 1\n\tأهلا – 你好 😀\u200f"
    assert printable(text) == text
