"""Scores by a program of the user's: a neural metric in an environment of its own (COMET, CometKiwi, MetricX)."""

import hashlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_LAST_WORDS = 2000  # characters of what a program wrote before it failed
_LARGEST_FILE = 10_000_000  # bytes of a file that counts as a program's text
_POLL = 0.2  # seconds between two looks at a request to stop

# Variables by which a process of training finds the others and holds back its threads. With them a metric would wait
# for the processes of training, or run on one thread.
_OF_TRAINING = re.compile(
    r"RANK|WORLD_SIZE|LOCAL_(RANK|WORLD_SIZE|SIZE)|MASTER_(ADDR|PORT)|(SLURM|BABELSHARD|MALLOC)_.*|(OMP|MKL)_NUM_THREADS"
)

Sentence = tuple[str, str, str]  # source, translation, reference


def check_command(name: str, command: str) -> None:
    """Raise ValueError if a command's program is not there. name: of the setting, for the message."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{name}={command!r} is no command: {error}; quote its words as a shell wants it") from error
    if not words:
        raise ValueError(f"{name} is empty; give the command that scores, with its program")
    if shutil.which(words[0]) is None:
        raise ValueError(
            f"{name}={command!r}: the program {words[0]} does not exist or may not be executed; install the metric in "
            "an environment of its own and name that environment's program (docs/scoring.md)"
        )


def file_digests(command: str) -> list[str]:
    """Return the SHA-256 of the text files that a command names, programs and settings, of at most 10 MB each."""
    program, *words = shlex.split(command)
    contents = [_content(word) for word in (shutil.which(program) or program, *words)]
    return [hashlib.sha256(content).hexdigest() for content in contents if content is not None and b"\0" not in content]


def command_signature(command: str) -> str:
    """Return a command's signature: its program, and a hash of the whole command and of the text files that it names.

    It does not show the command, which may have paths and passwords.
    """
    program = re.sub(r"[^\w.+-]", "_", Path(shlex.split(command)[0]).name)
    whole = "\n".join([command, *file_digests(command)])
    return f"command:{program}|sha256:{hashlib.sha256(whole.encode()).hexdigest()[:12]}"


def scores_by_command(name: str, command: str, sentences: Sequence[Sentence]) -> list[float]:
    """Return the numbers that a program prints for the sentences, one for each.

    The program runs without a shell. It reads a line for each sentence: source, translation and reference, with tabs
    between them. It writes a number for each line, and nothing else, to its standard output.

    name: of the setting, for messages.
    Raises ValueError if it fails, or prints something else.
    """
    scores = scores_unless_stopped(name, command, sentences, stop=lambda: False)
    assert scores is not None
    return scores


def scores_unless_stopped(
    name: str, command: str, sentences: Sequence[Sentence], stop: Callable[[], bool]
) -> list[float] | None:
    """Return the numbers as `scores_by_command` does, or None if a stop was requested: the program is then ended."""
    lines = "".join("\t".join(" ".join(text.split()) for text in sentence) + "\n" for sentence in sentences)
    finished = _run(shlex.split(command), lines, stop)
    if finished is None or (finished.returncode and stop()):  # a stop of the whole job can reach the program first
        return None
    if finished.returncode:
        words = finished.stderr.strip()[-_LAST_WORDS:] or "it wrote no message"
        raise ValueError(f"{name}={command!r} ended with code {finished.returncode}: {words}")
    printed = finished.stdout.split()
    if len(printed) != len(sentences):
        raise ValueError(
            f"{name}={command!r} printed {len(printed)} numbers for {len(sentences)} sentences; it must print one "
            "number a line and nothing else"
        )
    return [_number(name, command, line, text) for line, text in enumerate(printed, start=1)]


def _run(words: Sequence[str], lines: str, stop: Callable[[], bool]) -> "subprocess.CompletedProcess[str] | None":
    """Run a program to its end. Return None if a stop was requested before, and kill it and what it has started."""
    pipe, left = subprocess.PIPE, iter([lines])
    with subprocess.Popen(
        words,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        encoding="utf-8",
        errors="replace",
        env=_environment(os.environ),
        process_group=0,
    ) as process:
        try:
            while not stop():
                try:
                    output, errors = process.communicate(next(left, None), timeout=_POLL)
                except subprocess.TimeoutExpired:
                    continue
                return subprocess.CompletedProcess(words, process.returncode, output, errors)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    return None


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of a distributed job."""
    return {name: value for name, value in variables.items() if not _OF_TRAINING.fullmatch(name)}


def _content(word: str) -> bytes | None:
    """Return the content of the file that a word names; None if it is not a file, or a large one."""
    path = Path(word)
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size <= _LARGEST_FILE else None
    except OSError:  # no path at all, such as a word of many letters, or a file that only the program can read
        return None


def _number(name: str, command: str, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name}={command!r} printed {text[:40]!r} for sentence {line}; it must be a finite number")
    return value
