"""The store of artifacts: it runs a stage whose key is not published yet, and publishes the result in one step.

An unchanged stage never runs twice, and a changed one makes anew only what depends on its output. Work happens in
`<stage>/<key>.partial`; the manifest is written last, and one rename publishes. A failure leaves the partial directory,
from which the next run resumes. A published artifact is never changed.
"""

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Protocol

from pipeline.dag.artifact import Artifact, publish, read_artifact, read_manifest, verify
from pipeline.dag.stage import Stage
from pipeline.dag.uses import UNRECORDED, UseRecord, hold_store
from pipeline.files import check_writable, remove_tree
from pipeline.locks import hold_lock
from pipeline.stopping import Stopped, stop_if_asked

logger = logging.getLogger(__name__)

StageState = Literal["waiting", "running", "done", "reused", "failed", "stopped"]


class Listener(Protocol):
    """An object that a store tells about its stages, from several threads.

    directory: of the results of the run, which uses the artifacts that the store gives.
    """

    directory: Path

    def describe(self, *, recipe: str, pairs: Sequence[str]) -> None:
        """Take the name of the recipe, and the names of the pairs."""

    def stage(self, title: str, state: StageState, directory: Path) -> None:
        """Take the new state of a stage. Stages that were published before are not told.

        state: `waiting` while another process makes the artifact, then `reused`.
        directory: the artifact's; partial work lies beside it.
        """

    def batch(self, what: str, *, num_done: int, total: int, seconds_left: float) -> None:
        """Take the progress of several systems that are made one after the other."""

    def expect(self, **estimates: float | None) -> None:
        """Take estimates for what has not begun; None is unknown.

        training: seconds of the main training.
        translation: time of the translation by the main model, in units of that.
        baselines: time of all bilingual models and their translations, in units of that.
        capped: 1 if a bilingual model may stop early, so that its budget is only a cap; else 0.
        """


class Store:
    """The artifacts below one directory. Several threads may use it at once.

    listener: is told about the stages that are run.
    ran: titles of the stages that this process ran.
    reused: `stage/key` of artifacts that existed when they were needed.
    earlier: the reused artifacts that another process made, and those that this process only finished.
    """

    def __init__(self, root: Path, listener: Listener | None = None) -> None:
        self.root = root
        self.ran: list[str] = []
        self.reused: set[str] = set()
        self.earlier: set[str] = set()
        self._made: set[str] = set()
        self._sound: set[Path] = set()  # artifacts that were hashed here
        self._checking = threading.Lock()
        self._says_at_work = False
        self._held = ExitStack()  # locks that this process keeps to its end
        self._uses = UseRecord(root, listener.directory) if listener is not None else None
        self.listener = listener

    def get(self, stage: Stage) -> Artifact:
        """Return the stage's artifact. If its key is not published yet, run the stage and publish the result."""
        key = stage.key()
        final = self.root / stage.name / key
        title = f"{stage.name} {stage.label}".strip()
        with hold_store(self.root, shared=True):  # so that nobody removes it before its use is known
            if self._uses is None:
                self._say_at_work()
            elif self.root.is_dir():
                self._uses.add(f"{stage.name}/{key}")
            artifact = read_artifact(stage.name, key, final)
        if artifact is not None:
            self._note_reuse(f"{stage.name}/{key}")
            return artifact
        check_writable(final.parent, "runtime.artifacts")
        if self._uses is not None:
            self._uses.add(f"{stage.name}/{key}")
        try:
            with hold_lock(final.with_suffix(".lock"), title, waiting=lambda: self._tell(title, "waiting", final)):
                return self._make(stage, key, title, final)
        except BaseException as error:
            failed = isinstance(error, Exception) and not isinstance(error, Stopped)
            self._tell(title, "failed" if failed else "stopped", final)
            raise

    def _say_at_work(self) -> None:
        """Keep `make remove UNUSED=1` from this store until the process ends."""
        with self._checking:
            if not self._says_at_work and self.root.is_dir() and os.access(self.root, os.W_OK):
                self._held.enter_context(hold_lock(self.root / UNRECORDED, f"store {self.root}", shared=True))
                self._says_at_work = True

    def _make(self, stage: Stage, key: str, title: str, final: Path) -> Artifact:
        """Run the stage, whose lock is held, and publish the result."""
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
        """Hash the inputs of the stage that this process has not hashed yet. Raises ValueError where one is damaged."""
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
        """Return the stage's artifact if it is published, else None."""
        key = stage.key()
        return read_artifact(stage.name, key, self.root / stage.name / key)

    def trace(self, stage: Stage) -> Path | None:
        """Return the directory of the stage's artifact, or of an attempt to make it; None where neither exists."""
        final = self.root / stage.name / stage.key()
        return next((path for path in (final, final.with_suffix(".partial")) if path.exists()), None)

    def inputs(self, artifact: Artifact) -> dict[str, Artifact]:
        """Return the inputs of an artifact by the names that its stage gave them. Raises ValueError as `find`."""
        record = read_manifest(artifact.path)
        return {name: self.find(entry["stage"], entry["key"]) for name, entry in record["inputs"].items()}

    def hold(self, name: str, key: str) -> Artifact:
        """Return an artifact as `find`, which nobody can remove until this process ends."""
        with hold_store(self.root, shared=True):
            artifact = self.find(name, key)
            if os.access(artifact.path.parent, os.W_OK):
                lock = hold_lock(artifact.path.with_suffix(".lock"), f"{name}/{key}", shared=True)
                self._held.enter_context(lock)
        return artifact

    def find(self, name: str, key: str) -> Artifact:
        """Return an artifact that was published earlier. Raises ValueError if it is not below this root."""
        artifact = read_artifact(name, key, self.root / name / key)
        if artifact is None:
            raise ValueError(
                f"artifact {name}/{key} is not in {self.root}; set runtime.artifacts to the directory that has it, or "
                "make it again by the command that did"
            )
        return artifact


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
