"""Published directories: their manifests, and the check that they still hold what was published.

A manifest names every file with its size and sha256. Reading an artifact compares sizes, which costs nothing; `verify`
hashes the files, once before a stage reads them. Two kinds of files are no part of the content, so a key does not
depend on them and nobody hashes them again: logs, and what only a resumed training reads.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.engine.checkpoint.names import RESUME
from pipeline.files import file_sha256, sync, sync_tree

MANIFEST = "manifest.json"
LOG_DIR = "log"  # its files are records of a stage (times, rates), not part of the content
OF_TRAINING = re.compile(rf"checkpoints/step-\d+/{RESUME}-\d+\.safetensors")  # such as the optimizer's moments


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A published directory.

    content: sha256 over its files' names and hashes, without logs, values that a clock decided, and the files of
        checkpoints that only a resumed training reads.
    """

    stage: str
    key: str
    path: Path
    content: str


def read_artifact(stage: str, key: str, path: Path) -> Artifact | None:
    """Return the artifact at `path`, None without one. Raises ValueError if a file is missing or has another size."""
    if not path.exists():
        return None
    record = read_manifest(path)
    for name, meta in _content_files(record).items():
        file = path / name
        if not file.exists() or file.stat().st_size != meta["bytes"]:
            raise _damaged(path, f"{name} is missing or has another size")
    return Artifact(stage=stage, key=key, path=path, content=record["content"])


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a published directory. Raises ValueError where it is missing or damaged."""
    try:
        record: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        whole = record["content"] == content_of(record["files"])
    except FileNotFoundError as error:
        raise _damaged(path, f"{MANIFEST} is missing") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # it is cut off, or no manifest
        raise _damaged(path, f"{MANIFEST} cannot be read ({error})") from error
    if not whole:
        raise _damaged(path, f"{MANIFEST} differs from what was published")
    return record


def verify(artifact: Artifact) -> None:
    """Hash every file of an artifact. Raises ValueError that names the first file that was changed."""
    for name, meta in _content_files(read_manifest(artifact.path)).items():
        file = artifact.path / name
        if not file.exists() or file_sha256(file) != meta["sha256"]:
            raise _damaged(artifact.path, f"{name} is missing or differs from what was published")


def publish(partial: Path, final: Path, record: Mapping[str, Any], clocks: Collection[str] = ()) -> str:
    """Write the manifest, bring everything to the disk, rename `partial` to `final`, and return the content.

    record: entries of the manifest besides files and content.
    clocks: names of values that are no part of the content, as in `Stage`.
    Raises ValueError for a directory without files, and OSError; then `partial` stays.
    """
    files: dict[str, dict[str, Any]] = {}
    for file in sorted(partial.rglob("*")):
        if file.is_file() and file.name != MANIFEST:
            name = str(file.relative_to(partial))
            files[name] = {"sha256": file_sha256(file), "bytes": file.stat().st_size}
            if _is_content(name) and (timeless := _timeless_sha256(file, clocks)) is not None:
                files[name]["content"] = timeless
    if not files:
        raise ValueError(f"stage {record['stage']} wrote nothing into {partial}")
    content = content_of(files)
    manifest = json.dumps({**record, "files": files, "content": content}, indent=1, ensure_ascii=False)
    (partial / MANIFEST).write_text(manifest, encoding="utf-8")
    sync_tree(partial)
    partial.rename(final)
    sync(final.parent)
    return content


def content_of(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the hash of a directory's content from its files' hashes."""
    hashes = {name: meta.get("content", meta["sha256"]) for name, meta in sorted(files.items()) if _is_content(name)}
    return hashlib.sha256("\n".join(f"{digest}  {name}" for name, digest in hashes.items()).encode()).hexdigest()


def _content_files(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a manifest without the files that are no part of the content, which may be deleted."""
    return {name: meta for name, meta in record["files"].items() if _is_content(name)}


def _is_content(name: str) -> bool:
    return not name.startswith(LOG_DIR + "/") and not OF_TRAINING.fullmatch(name)


def _timeless_sha256(file: Path, clocks: Collection[str]) -> str | None:
    """Return the sha256 of a JSON file without the values that a clock decided; None for a file without such values."""
    if not clocks or file.suffix != ".json":
        return None
    values = json.loads(file.read_text(encoding="utf-8"))
    timeless = _without(values, clocks)
    if timeless == values:
        return None
    return hashlib.sha256(json.dumps(timeless, ensure_ascii=False).encode()).hexdigest()


def _without(values: Any, names: Collection[str]) -> Any:
    """Return JSON values without those of these names, at any depth."""
    if isinstance(values, dict):
        return {name: _without(value, names) for name, value in values.items() if name not in names}
    if isinstance(values, list):
        return [_without(value, names) for value in values]
    return values


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(
        f"artifact {path.parent.name}/{path.name} is damaged: {what}; delete {path} and run again to rebuild it"
    )
