"""Configuration of `make serve`; free of the web framework, so that a wrong key is told at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import compose_tree
from pipeline.decode.text import Long
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

_MAY_BE_ZERO = ("wait_ms", "client_connections", "client_rate")


@dataclass(frozen=True, kw_only=True)
class LimitsConfig:
    """Limits of what clients may ask for.

    lines, characters: of a request, prefixes counted. bytes: of its body. beam: hypotheses of a sentence, kept or
    drawn. waiting: requests that are translated or wait, of all clients, which may have four times as many connections.
    seconds: until a request is given up; a connection must send one within as many, and take its answer within as many.
    client_connections: of one address at once, 0 for as many as of all. client_rate: requests that one address may send
    in a second, 0 for any number.
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
    """wait_ms: how long a request waits for others to be translated with it. lines, characters: of what is translated
    together; a longer request goes in parts, between which others have their turn."""

    wait_ms: float
    lines: int
    characters: int


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What configs/serve.yaml says. experts: name of a pruning. grace: seconds that requests have to end once the
    server is asked to stop. long: as of `Translator`."""

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
            raise ValueError("run is empty; give the name of a finished run, a directory below runs/")
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
    """The configuration of `make serve`. Raises ValueError with what to change."""
    return build(ServeConfig, compose_tree("serve", overrides))
