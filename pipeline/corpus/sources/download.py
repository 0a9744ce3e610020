"""Download of a file over HTTP that goes on where it stopped, and gives up in words."""

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

from pipeline.stage import Stopped, file_sha256, stop_if_asked, stopping

_CHUNK = 1 << 20
_GAIN = 1 << 20  # bytes after which an attempt that broke off counts as none
_SPARE = 256 << 20  # bytes of disk that a download of unknown size leaves free
_LOG_SECONDS = 15.0
_PASSING = frozenset({408, 425, 429})  # client errors that another try may cure; so may every server error

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for a server, in seconds."""

    timeout: float = 30.0  # of silence, after which a connection counts as dead
    attempts: int = 5  # in a row that brought nothing
    pause: float = 1.0  # before the second attempt; doubles from one to the next, with jitter
    longest_pause: float = 60.0

    def wait(self, failures: int, asked: float = 0.0) -> None:
        """Sleep before the next attempt. asked: what the server wants, bounded by longest_pause. Raises Stopped."""
        backoff = self.pause * 2.0 ** (failures - 1) * random.uniform(0.75, 1.25)  # no two processes in step
        if stopping.wait(min(max(backoff, asked), self.longest_pause)):
            raise Stopped("download")


def download(url: str, path: Path, *, sha256: str = "", patience: Patience | None = None, advice: str = "") -> Path:
    """Fetch `url` to `path`, once: a file that is there already is kept, unless it is not the one of `sha256`.

    What arrives is kept in `<path>.part` and continued by the next call, if the server says that the file is still the
    same (ETag or Last-Modified). Only a complete and checked file gets its name. Processes may share a file.
    advice: what to do where the network does not reach, for the error.
    Raises ValueError if the server does not answer, refuses, sends more than there is room for, or another file than
    `sha256` says.
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
            if resumed:  # the pieces may be of two files, where a server does not say that it changed
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
    """An attempt that another one may make good."""

    def __init__(self, reason: str, asked: float = 0.0) -> None:
        super().__init__(reason)
        self.asked = asked


class _Part:
    """A download under way: the bytes so far, and by what the server knows the file they are of."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path.with_name(path.name + ".part")
        self._state = path.with_name(path.name + ".part.json")
        self.url = url
        self.validator, self.total = "", -1  # ETag or date; bytes, -1 where the server does not say
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
        """Start anew, with another file or from its first byte."""
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
    """Bring `part` to its end, in as many attempts as patience allows."""
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
                    patience.wait(failures, broken.asked)
                    continue
                if not part.validator:
                    part.discard()  # it cannot be continued
                kept = f"; {part.have:,} bytes are kept, the same command goes on from there" if part.validator else ""
                where = part.path.with_suffix("")
                raise ValueError(
                    f"{url}: {broken} (tried {tries} times in {time.monotonic() - started:.0f} s{kept}); "
                    + (advice or f"where there is no network, fetch the file elsewhere and put it at {where}")
                ) from broken


def _attempt(session: requests.Session, url: str, part: _Part, patience: Patience) -> None:
    """One request. Raises _BrokenError if it does not bring the file to its end, ValueError if no other will."""
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
    """Judge the answer, and throw away what we have of a file that has changed."""
    status = response.status_code
    if status in _PASSING or status >= 500:
        after = response.headers.get("Retry-After", "")
        raise _BrokenError(f"answered {status} ({response.reason})", float(after) if after.isdecimal() else 0.0)
    if status == 416:
        part.discard()
        raise _BrokenError("has no bytes from where we stopped")
    if status not in (200, 206):
        why = "; it may need a login" if status in (401, 403) else ""
        raise ValueError(f"{response.url}: answered {status} ({response.reason}){why}; correct the address")
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
    """By what the server would know this file again; a weak ETag does not say that its bytes are the same."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")


def _receive(response: requests.Response, part: _Part) -> None:
    logged = time.monotonic()
    _log.info("downloading %s, %s", response.url, _amount(part))
    received = part.have
    with part.path.open("ab") as file:
        # undecoded: a server may call a .gz file a gzip-encoded one
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            if part.total < 0:
                _check_spare(part, response.url)
            file.write(chunk)
            received += len(chunk)
            if 0 <= part.total < received:
                return  # a server that goes on for ever; what it sent is thrown away
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
    """Raises ValueError, and removes what came, before a file of unknown size fills the disk."""
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
