"""Download of a file over HTTP. It continues where it stopped, and explains why it gives up."""

import json
import logging
import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import requests
import urllib3
from filelock import FileLock

from pipeline.files import file_sha256
from pipeline.stopping import Stopped, stop_if_asked, stopping

_CHUNK = 1 << 20
_GAIN = 1 << 20  # a broken attempt that brought so many bytes does not count as a failure
_SPARE = 256 << 20  # bytes of disk that a download of unknown size leaves free
_LOG_SECONDS = 15.0
_ABSENT = frozenset({404, 410})
_PASSING = frozenset({408, 425, 429})  # client errors for which another attempt may succeed, as for every server error

_log = logging.getLogger(__name__)


class MissingFileError(ValueError):
    """An error for a file that a server does not have; other files of it may exist."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """The patience of a download with a server.

    timeout: seconds of silence after which a connection is dead.
    attempts: failures in a row after which the download gives up.
    pause: seconds before the second attempt; it doubles from one to the next, with jitter.
    longest_pause: most seconds of a pause.
    """

    timeout: float = 30.0
    attempts: int = 5
    pause: float = 1.0
    longest_pause: float = 60.0

    def wait(self, failures: int, retry_after: float = 0.0) -> None:
        """Sleep before the next attempt. retry_after: seconds that the server requests. Raises Stopped."""
        backoff = (
            self.pause * 2.0 ** (failures - 1) * random.uniform(0.75, 1.25)
        )  # so that processes do not retry together
        if stopping.wait(min(max(backoff, retry_after), self.longest_pause)):
            raise Stopped("download")


def download(url: str, path: Path, *, sha256: str = "", patience: Patience | None = None, advice: str = "") -> Path:
    """Fetch `url` to `path`. An existing file is kept, if it has the checksum.

    The bytes so far are in `<path>.part`. The next call continues them if the server says that the file is the same
    (ETag or Last-Modified). Only a complete and checked file gets its name. Several processes may fetch one file.

    advice: what to do without a network, for the error.
    Raises ValueError if the server does not answer or refuses, if the disk is too small, and for a wrong checksum;
    MissingFileError if the server does not have the file.
    """
    patience = patience or Patience()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if path.exists():
            if not sha256 or file_sha256(path) == sha256:
                return path
            _log.warning("%s is not the file that sha256 %s names; it is fetched again", path, sha256)
        part = _Part(path, url)
        resumed = part.have > 0
        _fetch(url, part, patience, advice)
        if sha256 and (actual := file_sha256(part.path)) != sha256:
            part.discard()
            if resumed:  # the pieces may be from two versions, if the server does not announce a change
                _fetch(url, part, patience, advice)
                actual = file_sha256(part.path)
            if actual != sha256:
                part.discard()
                raise ValueError(
                    f"{url}: sha256 is {actual} where the manifest says {sha256}; it is another file now: "
                    "find the one that is meant, or correct the manifest if the change is"
                )
        part.publish(path)
    return path


class _BrokenError(Exception):
    """A failed attempt, after which another one may succeed. retry_after: seconds that the server requests."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class _Part:
    """A download in progress: the bytes so far, and the mark by which the server recognises the version of the file.

    validator: ETag or date.
    total: bytes of the whole file, -1 if the server does not say.
    """

    def __init__(self, path: Path, url: str) -> None:
        self.path = path.with_name(path.name + ".part")
        self._state = path.with_name(path.name + ".part.json")
        self.url = url
        self.validator, self.total = "", -1
        if self.path.exists() and self._state.exists():
            state = json.loads(self._state.read_text(encoding="utf-8"))
            if state["url"] == url:
                self.validator, self.total = state["validator"], state["total"]
        if not self.validator:
            self.discard()

    @property
    def have(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def complete(self) -> bool:
        return 0 <= self.total == self.have

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)
        self.validator, self.total = "", -1

    def begin(self, validator: str, total: int) -> None:
        """Start again from the first byte."""
        self.discard()
        self.validator, self.total = validator, total
        temporary = self._state.with_name(self._state.name + ".new")
        content = {"url": self.url, "validator": validator, "total": total}
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(self._state)

    def publish(self, path: Path) -> None:
        self.path.replace(path)
        self._state.unlink(missing_ok=True)


def _fetch(url: str, part: _Part, patience: Patience, advice: str) -> None:
    """Complete `part`, in as many attempts as patience allows."""
    started, tries, failures = time.monotonic(), 0, 0
    with requests.Session() as session:
        while not part.complete:
            tries, before = tries + 1, part.have
            try:
                _attempt(session, url, part, patience)
                return
            except _BrokenError as broken:
                failures = 1 if part.have - before >= _GAIN else failures + 1
                if failures < patience.attempts:
                    _log.warning("%s: %s; trying again (%d of %d)", url, broken, failures + 1, patience.attempts)
                    patience.wait(failures, broken.retry_after)
                    continue
                if not part.validator:
                    part.discard()  # it cannot be continued
                kept = f"; {part.have:,} bytes are kept, the same command goes on from there" if part.validator else ""
                target = part.path.with_suffix("")
                raise ValueError(
                    f"{url}: {broken} (tried {tries} times in {time.monotonic() - started:.0f} s{kept}); "
                    + (advice or f"where there is no network, fetch the file elsewhere and put it at {target}")
                ) from broken


def _attempt(session: requests.Session, url: str, part: _Part, patience: Patience) -> None:
    """Make one request. Raises _BrokenError if the file is not complete, ValueError if another request cannot help."""
    headers = {"Accept-Encoding": "identity"}
    if not part.validator:
        part.discard()
    if part.have:
        headers |= {"Range": f"bytes={part.have}-", "If-Range": part.validator}
    try:
        with session.get(url, headers=headers, stream=True, timeout=patience.timeout) as response:
            _accept(response, part)
            _check_space(part, url)
            _receive(response, part)
    except requests.exceptions.SSLError as error:
        raise ValueError(f"{url}: no trust in the server's certificate ({error}); check the address") from error
    except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
        raise _BrokenError(_reason(error, part, patience)) from error
    except requests.RequestException as error:
        raise ValueError(f"{url}: cannot be asked for ({error}); correct the address") from error
    if part.total >= 0 and not part.complete:
        have, total = part.have, part.total
        if have > total:
            part.discard()
        raise _BrokenError(f"sent {have:,} bytes of a file of {total:,}")


def _accept(response: requests.Response, part: _Part) -> None:
    """Check the answer, and discard the bytes so far if the file has changed."""
    status = response.status_code
    if status in _PASSING or status >= 500:
        after = response.headers.get("Retry-After", "")
        raise _BrokenError(f"answered {status} ({response.reason})", float(after) if after.isdecimal() else 0.0)
    if status == 416:
        part.discard()
        raise _BrokenError("has no bytes from where we stopped")
    if status not in (200, 206):
        why = "; it may need a login" if status in (401, 403) else ""
        kind = MissingFileError if status in _ABSENT else ValueError
        raise kind(f"{response.url}: answered {status} ({response.reason}){why}; correct the address")
    if status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        same = _validator(response) in ("", part.validator) and (not total.isdecimal() or int(total) == part.total)
        if not same or not span.startswith(f"{part.have}-"):
            part.discard()
            raise _BrokenError(f"sent bytes {span or '?'} of {total or '?'}, which do not continue what we have")
        return
    if part.have:
        _log.info("%s has changed since the last attempt, or cannot be continued; from the start again", response.url)
    length = response.headers.get("Content-Length", "")
    part.begin(_validator(response), int(length) if length.isdecimal() else -1)


def _validator(response: requests.Response) -> str:
    """Return the mark of this version of the file. A weak ETag is none, because the bytes may differ."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


def _receive(response: requests.Response, part: _Part) -> None:
    logged = time.monotonic()
    _log.info("downloading %s, %s", response.url, _amount(part))
    received = part.have
    with part.path.open("ab") as file:
        # undecoded, because a server may declare a .gz file as gzip-encoded
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            if part.total < 0:
                _check_spare(part, response.url)
            file.write(chunk)
            received += len(chunk)
            if 0 <= part.total < received:
                return  # the server may send without end; the caller discards the file
            stop_if_asked(f"downloading {response.url}")
            if time.monotonic() - logged >= _LOG_SECONDS:
                logged = time.monotonic()
                file.flush()
                _log.info("downloading %s, %s", response.url, _amount(part))


def _amount(part: _Part) -> str:
    total = f"{part.total / 1e6:.1f}" if part.total >= 0 else "?"
    return f"{part.have / 1e6:.1f} of {total} MB"


def _check_space(part: _Part, url: str) -> None:
    needed, free = part.total - part.have, shutil.disk_usage(part.path.parent).free
    if needed > free:
        raise ValueError(
            f"{url}: {needed / 1e9:.2f} GB to come and {free / 1e9:.2f} GB free in {part.path.parent}; free some, "
            "or let the artifacts be elsewhere (runtime.artifacts)"
        )


def _check_spare(part: _Part, url: str) -> None:
    """Raise ValueError and remove the bytes so far, before a file of unknown size fills the disk."""
    if (free := shutil.disk_usage(part.path.parent).free) < _SPARE:
        have = part.have
        part.discard()
        raise ValueError(
            f"{url}: {have / 1e9:.2f} GB came without an end, and {free / 1e9:.2f} GB are left in {part.path.parent}; "
            "what came is removed: free some, or let the artifacts be elsewhere (runtime.artifacts)"
        )


def _reason(error: Exception, part: _Part, patience: Patience) -> str:
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"did not answer for {patience.timeout:g} s"
    if part.have:
        return f"broke off after {part.have:,} bytes ({type(error).__name__})"
    cause = error.args[0] if error.args else error
    return f"does not answer ({getattr(cause, 'reason', cause)})"
