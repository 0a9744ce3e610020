"""Stages: content keys, resumable partials, atomic publication.

A stage is a function that fills one directory. Its key hashes its name, its version, the slice of the configuration
that it declares and the content hashes of its inputs, so an unchanged stage never runs twice and a changed one
invalidates only what depends on its output. Work happens in `<stage>/<key>.partial`; the manifest is written last and
one rename publishes. A failure leaves the partial for the next run to resume from; the published artifact is never
touched.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from pipeline.artifact import MANIFEST, Artifact, file_sha256, publish, read_artifact, read_manifest, sync, verify

__all__ = [
    "MANIFEST",
    "Artifact",
    "Listener",
    "Stage",
    "StageState",
    "Stopped",
    "Store",
    "check_free",
    "check_writable",
    "file_sha256",
    "hold_lock",
    "remove_tree",
    "stop_if_asked",
    "stopping",
    "try_lock",
    "write_atomically",
]

logger = logging.getLogger(__name__)

stopping = threading.Event()  # set once this process has been asked to stop; whatever waits gives up then


class Stopped(Exception):  # noqa: N818 - an orderly end, not an error
    """Work was asked to stop, saved what it had, and can be resumed."""


def stop_if_asked(title: str) -> None:
    """For loops that may run long in a thread, which a signal does not reach. Raises Stopped."""
    if stopping.is_set():
        raise Stopped(title)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one run of a stage depends on, and the function that fills its directory.

    config: the JSON-serialisable slice of the configuration that can change the output. version: raised when the code's
    output changes. inputs: artifacts by the name under which the stage reads them. run: called with the partial
    directory, which holds what an interrupted attempt left; a stage that cannot resume declares `resumable=False` and
    starts empty. clocks: names in its JSON files whose values a clock decides, which are no part of the content.
    """

    name: str
    version: int
    config: Any
    inputs: Mapping[str, Artifact] = field(default_factory=dict)
    run: Callable[[Path], None]
    label: str = ""
    resumable: bool = False
    clocks: Collection[str] = ()

    def key(self) -> str:
        """First 16 hexadecimal digits of the hash of everything that decides the output."""
        decisive = {
            "name": self.name,
            "version": self.version,
            "config": self.config,
            "inputs": {name: artifact.content for name, artifact in sorted(self.inputs.items())},
        }
        text = json.dumps(decisive, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


StageState = Literal["waiting", "running", "done", "reused", "failed", "stopped"]


class Listener(Protocol):
    """Hears how the stages of a store go, from several threads."""

    def stage(self, title: str, state: StageState, directory: Path) -> None:
        """directory: the artifact's, whose work lies beside it as long as it is partial. waiting: another process is at
        work on it; reused: and that process has made it. What is there already is not told."""

    def batch(self, what: str, *, done: int, total: int, seconds_left: float) -> None:
        """How far a number of systems is that are made one after the other."""


class Store:
    """The artifacts below one directory, and what this process did.

    ran: titles of the stages that it ran.
    reused: `stage/key` of artifacts that were there when they were asked for.
    earlier: those of reused that this process did not make itself, and what it only finished.
    Several threads may ask at once. listener: is told of the stages that are run.
    """

    def __init__(self, root: Path, listener: Listener | None = None) -> None:
        self.root = root
        self.ran: list[str] = []
        self.reused: set[str] = set()
        self.earlier: set[str] = set()
        self._made: set[str] = set()
        self._sound: set[Path] = set()  # artifacts that were hashed here
        self._checking = threading.Lock()
        self.listener = listener

    def get(self, stage: Stage) -> Artifact:
        """The stage's artifact: the published one if its key exists, else the stage is run and published."""
        key = stage.key()
        final = self.root / stage.name / key
        title = f"{stage.name} {stage.label}".strip()
        if (artifact := read_artifact(stage.name, key, final)) is not None:
            self._note_reuse(f"{stage.name}/{key}")
            return artifact
        check_writable(final.parent, "runtime.artifacts")
        try:
            with hold_lock(final.with_suffix(".lock"), title, waiting=lambda: self._tell(title, "waiting", final)):
                return self._make(stage, key, title, final)
        except BaseException as error:
            failed = isinstance(error, Exception) and not isinstance(error, Stopped)
            self._tell(title, "failed" if failed else "stopped", final)
            raise

    def _make(self, stage: Stage, key: str, title: str, final: Path) -> Artifact:
        """Run the stage, whose lock is held, and publish what it made."""
        if (artifact := read_artifact(stage.name, key, final)) is not None:  # another process or thread was faster
            self._note_reuse(f"{stage.name}/{key}")
            self._tell(title, "reused", final)
            return artifact
        partial = final.with_suffix(".partial")
        if partial.exists() and not stage.resumable:
            remove_tree(partial)
        if partial.exists():
            logger.info("%s: resuming what was interrupted", title)
            self.earlier.add(f"{stage.name}/{key}")
        partial.mkdir(exist_ok=True)
        stop_if_asked(title)
        logger.info("%s: running", title)
        self._tell(title, "running", final)
        self._check_inputs(stage, title)
        began = time.monotonic()
        stage.run(partial)
        seconds = time.monotonic() - began
        artifact = _publish(stage, key, partial, final, seconds)
        self._sound.add(final)
        logger.info("%s: done in %.1f s", title, seconds)
        self._tell(title, "done", final)
        self.ran.append(title)
        self._made.add(f"{stage.name}/{key}")
        return artifact

    def _check_inputs(self, stage: Stage, title: str) -> None:
        """Hash what the stage reads, each artifact once; what this process made was hashed then. Raises ValueError
        where one is damaged."""
        for artifact in stage.inputs.values():
            with self._checking:
                stop_if_asked(title)
                if artifact.path not in self._sound:
                    verify(artifact)
                    self._sound.add(artifact.path)

    def _note_reuse(self, artifact: str) -> None:
        self.reused.add(artifact)
        if artifact not in self._made:
            self.earlier.add(artifact)

    def _tell(self, title: str, state: StageState, directory: Path) -> None:
        if self.listener is not None:
            self.listener.stage(title, state, directory)

    def published(self, stage: Stage) -> Artifact | None:
        """The stage's artifact if it is there already."""
        key = stage.key()
        return read_artifact(stage.name, key, self.root / stage.name / key)

    def inputs(self, artifact: Artifact) -> dict[str, Artifact]:
        """What an artifact was made from, by the names that its stage gave them. Raises ValueError as `find`."""
        record = read_manifest(artifact.path)
        return {name: self.find(of["stage"], of["key"]) for name, of in record["inputs"].items()}

    def find(self, name: str, key: str) -> Artifact:
        """An artifact that was published earlier. Raises ValueError if it is not below this root."""
        artifact = read_artifact(name, key, self.root / name / key)
        if artifact is None:
            raise ValueError(
                f"artifact {name}/{key} is not in {self.root}; set runtime.artifacts to the directory that has it, or "
                "make it again by the command that did"
            )
        return artifact


def remove_tree(path: Path) -> None:
    """Delete a directory and everything in it, following no link."""
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            remove_tree(entry)
        else:
            entry.unlink()
    path.rmdir()


def write_atomically(path: Path, text: str) -> None:
    """Replace a file in one step; on failure (a full disk, say) the old file stays and the error is raised."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _publish(stage: Stage, key: str, partial: Path, final: Path, seconds: float) -> Artifact:
    record = {
        "stage": stage.name,
        "version": stage.version,
        "key": key,
        "config": stage.config,
        "inputs": {name: {"stage": a.stage, "key": a.key, "content": a.content} for name, a in stage.inputs.items()},
        "seconds": round(seconds, 3),
    }
    content = publish(partial, final, record, stage.clocks)
    return Artifact(stage=stage.name, key=key, path=final, content=content)


def check_writable(path: Path, setting: str) -> None:
    """Create a directory and write into it. Raises ValueError that names the setting to change."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise ValueError(
            f"cannot write to {path} ({error.strerror}); make it writable or set {setting} to another directory"
        ) from error


def check_free(path: Path, needed: int, what: str) -> None:
    """Refuse work that will not fit. needed: bytes."""
    free = shutil.disk_usage(path).free
    if free < needed:
        raise ValueError(
            f"{what} needs about {needed / 1e6:,.0f} MB of disk at {path} and {free / 1e6:,.0f} MB are free; make room "
            "or set runtime.artifacts to another disk"
        )


def try_lock(stream: IO[str]) -> bool:
    """Take an exclusive lock on an open file, if nobody has it; the kernel releases it with the process."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(path: Path, title: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock that the kernel releases even if this process is killed. title, waiting: said and called
    when another process has it. Raises Stopped when asked to stop meanwhile."""
    with path.open("w") as stream:
        if not try_lock(stream):
            logger.info("%s: another process is at work on it; waiting", title)
            waiting()
            while not try_lock(stream):
                if stopping.wait(0.2):
                    raise Stopped(title)
        yield
