"""Record a training run's numbers in metrics.jsonl, wandb, TensorBoard, and a progress bar or plain lines.

Only the first process does so.
"""

import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast, get_args

from tqdm import tqdm

from pipeline.clock import clock
from pipeline.files import write_atomically
from pipeline.live import is_live
from pipeline.train.tensorboard import TensorBoard

logger = logging.getLogger(__name__)

WandbMode = Literal["online", "offline", "disabled"]
PLAIN_EVERY = 15.0  # seconds between lines of progress without a terminal


def wandb_mode(setting: str) -> WandbMode:
    """Return wandb's mode for a setting. `auto` is online only for a user who is logged in, and never asks for it."""
    if setting == "auto":
        setting = os.environ.get("WANDB_MODE", "auto")
    if setting in get_args(WandbMode):
        return cast(WandbMode, setting)
    import wandb

    # Silent, because for its greeting `login` asks the server for the user's name, which may take minutes.
    wandb.setup(settings=wandb.Settings(silent=True))
    return "online" if wandb.login(prompt=False, verify=False) else "offline"


class Records:
    """Append-only records of one run. A resumed run first removes what came after its checkpoint."""

    def __init__(
        self, directory: Path, *, title: str, slot: int, resumed_step: int, wandb: str, config: dict[str, Any]
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "metrics.jsonl"
        self._forget_after(resumed_step)
        self._stream = self.path.open("ab", buffering=0)
        self._waiting = b""  # lines, or the end of a line, that a full disk refused
        self._wandb = self._start_wandb(directory, title, wandb_mode(wandb), config)
        self._board: TensorBoard | None = TensorBoard(directory / "tensorboard", resumed_step=resumed_step)
        self._title = title
        self._bar = tqdm(
            desc=title,
            position=slot,
            unit="step",
            leave=False,
            file=sys.stderr,
            disable=not is_live(sys.stderr),
        )
        self._last_line = time.monotonic()
        self._began: tuple[float, float] | None = None

    def __enter__(self) -> "Records":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._append("")
        if self._waiting:
            self.warn(f"{self._waiting.count(10)} lines of {self.path} are lost")
        self._to_board(None)
        self._bar.close()
        self._stream.close()
        if self._wandb is not None:
            self._wandb.finish(exit_code=0 if error is None else 1)

    def write(self, record: dict[str, Any]) -> None:
        """Write one event: {"event": "train" | "validation" | ..., "step": n, ...}."""
        self._append(json.dumps(record, ensure_ascii=False) + "\n")
        if self._wandb is not None:
            event = record["event"]
            values = {f"{event}/{k}": v for k, v in record.items() if k not in ("event", "step")}
            self._wandb.log(values, step=record["step"])
        self._to_board(record)

    @contextmanager
    def tolerating(self, name: str) -> Iterator[None]:
        """Turn an OSError into a warning, so that a full disk does not end the run. name: of the file."""
        try:
            yield
        except OSError as error:
            self.warn(f"{name} could not be written: {error}")

    def progress(self, *, step: int, fraction: float, cross_entropy: float, tokens_per_second: float) -> None:
        """Show the progress. fraction: the share of the budget that is spent, which gives the ETA."""
        now = time.monotonic()
        if self._began is None:
            self._began = (now, fraction)
        began, first = self._began
        eta = (now - began) * (1 - fraction) / (fraction - first) if fraction > first else float("nan")
        text = f"ce {cross_entropy:.3f}, {tokens_per_second:,.0f} target tokens/s, ETA {clock(eta)}"
        if not self._bar.disable:
            self._bar.total = max(step, round(step / fraction)) if fraction > 0 else None
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(step - self._bar.n)
        elif now - self._last_line >= PLAIN_EVERY:
            self._last_line = now
            logger.info("%s: step %d (%.0f %%), %s", self._title, step, 100 * fraction, text)

    def say(self, text: str, level: int = logging.INFO) -> None:
        """Print a line that stays, above the progress bar if there is one."""
        if self._bar.disable:
            logger.log(level, "%s: %s", self._title, text)
        else:
            self._bar.write(f"{self._title}: {text}", file=sys.stderr)

    def warn(self, text: str) -> None:
        """Print a line that is shown even where the progress is one line."""
        self.say(f"warning: {text}", logging.WARNING)

    def _forget_after(self, step: int) -> None:
        if not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        write_atomically(self.path, "".join(x for x in whole if json.loads(x)["step"] <= step))

    def _append(self, line: str) -> None:
        """Write a line and all waiting ones to the file. What a full disk refuses waits for the next call."""
        was_waiting, self._waiting = bool(self._waiting), self._waiting + line.encode()
        try:
            while self._waiting:
                self._waiting = self._waiting[self._stream.write(self._waiting) :]
        except OSError as error:
            if not was_waiting:
                self.warn(f"{self.path} could not be written, its lines wait: {error}")

    def _to_board(self, record: dict[str, Any] | None) -> None:
        """Write a record to TensorBoard; None closes it. After an OSError it gets no more records."""
        if self._board is None:
            return
        try:
            if record is None:
                self._board.close()
            else:
                self._board.write(record)
        except OSError as error:
            self._board = None
            self.warn(f"TensorBoard's events end here: {error}")

    @staticmethod
    def _start_wandb(directory: Path, title: str, mode: WandbMode, config: dict[str, Any]) -> Any:
        if mode == "disabled":
            return None
        import wandb

        identity = directory / "wandb-id"
        if not identity.exists():
            write_atomically(identity, secrets.token_hex(4))

        def start(mode: WandbMode) -> Any:
            return wandb.init(
                project="babelshard",
                name=title,
                id=identity.read_text(encoding="utf-8"),
                resume="allow" if mode == "online" else None,
                dir=str(directory),
                mode=mode,
                config=config,
                settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
            )

        try:
            return start(mode)
        except wandb.Error as error:
            if mode != "online":
                raise
            logger.warning("%s: wandb is not reached (%s); recording offline", title, error)
            wandb.teardown()  # else it keeps the id of the run
            return start("offline")
