"""A small hub of data sets over real HTTP, with the part of the real protocol that its client needs."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.corpus.sources.serving import QuietHandler, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """Data sets below `root`, each at one commit. faults: statuses of the next requests. gated: it needs a login."""

    root: Path
    faults: list[int] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    gated: bool = False
    url: str = ""


@contextmanager
def serve_hub(hub: Hub) -> Iterator[Hub]:
    """Serve a hub until the end of the block."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            if hub.faults:
                return self._answer(hub.faults.pop(0), b"{}")
            if hub.gated:
                return self._answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
            parts = self.path.partition("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "datasets"]:
                return self._about("/".join(parts[2:4]), parts[4:])
            dataset, (_, revision, *name) = "/".join(parts[1:3]), parts[3:]
            return self._file(dataset, revision, "/".join(name))

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            """Answer with the sizes of some paths."""
            content = self.rfile.read(int(self.headers["Content-Length"])).decode()
            hub.requests.append(f"POST {self.path} {content}")
            parts = self.path.strip("/").split("/")
            directory = hub.root / "/".join(parts[2:4])
            paths = [value for key, _, value in (p.partition("=") for p in content.split("&")) if key == "paths"]
            if content.startswith("{"):
                paths = json.loads(content)["paths"]
            files = [directory / path.replace("%2F", "/") for path in paths]
            self._answer(200, json.dumps([_entry(directory, file) for file in files if file.exists()]).encode())

        def _about(self, dataset: str, what: list[str]) -> None:
            directory = hub.root / dataset
            if not directory.is_dir():
                return self._answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            if what[:1] == ["revision"] and what[1] not in ("main", COMMIT, "refs%2Fconvert%2Fparquet"):
                return self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            if what[:1] == ["tree"]:
                top = directory / "/".join(what[2:])
                paths = top.rglob("*") if "recursive=true" in self.path.lower() else top.glob("*")
                return self._answer(200, json.dumps([_entry(directory, path) for path in sorted(paths)]).encode())
            files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
            about = {"id": dataset, "sha": COMMIT, "tags": [], "siblings": [{"rfilename": name} for name in files]}
            return self._answer(200, json.dumps(about).encode())

        def _file(self, dataset: str, revision: str, name: str) -> None:
            path = hub.root / dataset / name
            if not path.is_file():
                return self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            span = self.headers.get("Range", "")
            if span:
                start, _, end = span.removeprefix("bytes=").partition("-")
                stop = int(end) + 1 if end else len(content)
                where = f"bytes {start}-{stop - 1}/{len(content)}"
                headers = {"ETag": etag, "X-Repo-Commit": COMMIT, "Content-Range": where}
                return self._answer(206, content[int(start) : stop], headers)
            return self._answer(200, content, {"ETag": etag, "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"})

        def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    with serving(Handler) as hub.url:
        yield hub


def _entry(directory: Path, path: Path) -> dict[str, object]:
    kind = "directory" if path.is_dir() else "file"
    size = 0 if path.is_dir() else path.stat().st_size
    return {"type": kind, "path": str(path.relative_to(directory)), "size": size, "oid": "0" * 40}
