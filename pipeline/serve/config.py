"""Configuration of `make serve`. Free of the web framework, so that a wrong key is reported at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import compose_tree
from pipeline.decode.text.line import Long
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

_MAY_BE_ZERO = ("wait_ms", "client_connections", "client_rate")


@dataclass(frozen=True, kw_only=True)
class LimitsConfig:
    """Limits for requests and connections.

    lines, characters: most lines and characters of a request, prefixes included.
    bytes: most bytes of its body.
    beam: most hypotheses of a sentence, kept or drawn.
    waiting: most requests of all clients that are translated or wait. Four times as many connections may be open.
    seconds: time until a request is given up. A connection must send a request, and take its answer, in the same time.
    client_connections: most connections of one address; 0 allows as many as for all.
    client_rate: most requests of one address in a second; 0 allows any number.
    """

    lines: int
    characters: int
    bytes: int
    beam: int
    waiting: int
    seconds: float
    client_connections: int
    client_rate: float


@dataclass(frozen=True, kw_only=True)
class BatchingConfig:
    """Sizes of the batches that are made of several requests. A longer request is translated in several batches.

    wait_ms: milliseconds that a request waits for others to share its batch.
    lines, characters: most lines and characters of a batch.
    """

    wait_ms: float
    lines: int
    characters: int


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Settings of a server, as in configs/serve.yaml.

    run: name of a finished run.
    experts: name of a pruning, or empty for all experts.
    host, port: address to listen on.
    grace: seconds in which requests may end after the server was asked to stop.
    long: as in `Translator`.
    decode: settings of decoding; None takes the run's own.
    """

    run: str
    experts: str
    host: str
    port: int
    grace: int
    long: Long
    limits: LimitsConfig
    batching: BatchingConfig
    decode: dict[str, Any]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError("NAME is empty; give the name of a finished run, a directory below runs/")
        if not self.host:
            raise ValueError(
                "host is empty; give 127.0.0.1 for this machine alone, or 0.0.0.0 for all of its addresses"
            )
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port={self.port} is not one of 1 to 65535, or 0 for any that is free")
        if self.grace < 0:
            raise ValueError(f"grace={self.grace} must not be negative")
        if self.runtime.launcher != "local":
            raise ValueError(
                f"runtime.launcher={self.runtime.launcher}: a server's processes are of this machine; leave it local"
            )
        for part in ("limits", "batching"):
            for name, value in vars(getattr(self, part)).items():
                if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
                    remedy = "not be negative" if name in _MAY_BE_ZERO else "be more than 0"
                    raise ValueError(f"{part}.{name}={value} must {remedy}")


def load_serve(overrides: Sequence[str]) -> ServeConfig:
    """Load the configuration of `make serve`. Raises ValueError with the remedy."""
    return build(ServeConfig, compose_tree("serve", overrides))
