"""The files of a data set that an entry needs, and copies of data sets on this machine."""

import fnmatch
import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from pipeline.corpus.languages import MissingPairError
from pipeline.corpus.manifest import FileEntry, is_url
from pipeline.corpus.sources.cards import Card, read_card

PARTS = {"train": "train", "dev": "validation", "test": "test"}  # names of the splits on hubs
_DATA = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".txt", ".arrow", ".gz", ".xz", ".bz2", ".zst")
_SHARD = re.compile(r"-(?P<number>[0-9]{5})-of-(?P<total>[0-9]{5})\.")


def copied_files(entry: FileEntry, files: Path) -> list[Path] | None:
    """Return the files of an entry in a copy of its data set below `files`, None if there is no copy.

    A copy may be a part of the data set. Raises ValueError if it lacks files of the entry.
    """
    directory = files / entry.dataset
    if not entry.dataset or not directory.is_dir():
        return None
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    needed = needed_files(entry, read_card(directory), names)
    for name in needed:
        shard = _SHARD.search(name)
        if shard is not None and (count := len(_shards(name, shard, needed))) < int(shard["total"]):
            raise ValueError(
                f"{directory / name} is one of {int(shard['total'])} files, {count} are there; fetch the others"
            )
    return [directory / name for name in needed]


def _shards(name: str, shard: re.Match[str], names: list[str]) -> list[str]:
    """Return the names that are shards of the same table."""
    start, end = name[: shard.start("number")], name[shard.end("number") :]
    return [file for file in names if file.startswith(start) and file.endswith(end)]


def files_here(entry: FileEntry, files: Path) -> list[Path]:
    """Return the files of an entry on this machine. They may change, so the key of a stage has their hashes."""
    paths = []
    for path in (*entry.paths, entry.archive):
        url = urlsplit(path)
        if url.scheme == "file":
            paths.append(Path(url2pathname(url.path)))
        elif path:
            paths.append(files / (PurePosixPath(unquote(url.path)).name if is_url(path) else path))
    if entry.format == "huggingface":
        paths += copied_files(entry, files) or []
    return [path for path in paths if path.is_file()]


def needed_files(entry: FileEntry, card: Card, names: list[str]) -> list[str]:
    """Return the names of the files of an entry's configuration and part.

    Of several configurations, separated by `|`, the first one that the data set has is taken. If its card lists no
    configurations, they are directories, and the names of the files say their part.
    Raises ValueError, with a list of what exists, if no file fits: MissingPairError where the data set has none.
    """
    part, where = entry.part or PARTS[entry.split], f"data set {entry.dataset}"
    data = [name for name in names if name.endswith(_DATA) and not name.startswith(".")]
    config = _choose(entry, card, sorted({name.partition("/")[0] for name in data if "/" in name}))
    if config in card.configs:
        splits = card.configs[config]
        patterns = [pattern for split in (part, "*") for pattern in splits.get(split, ())]
        if not patterns:
            raise MissingPairError(f"{where}: configuration {config} has no part {part!r}; it has {', '.join(splits)}")
        matches = [name for name in data if any(_matches(name, pattern) for pattern in patterns)]
        if not matches:
            raise ValueError(
                f"{where}: {', '.join(patterns)} of its configuration {config} is not there; add the files"
            )
        return matches
    if config not in ("", "default"):
        data = [name for name in data if name.startswith(f"{config}/")]
    # without a card the name of a file may say its part; else all files are training data
    named = [name for name in data if re.search(rf"(^|[^a-z0-9]){re.escape(part)}([^a-z0-9]|$)", name)]
    if not named and (part != "train" or not data):
        raise MissingPairError(f"{where}: no name of a file says {part}; it has {', '.join(data[:10]) or 'no data'}")
    return named or data


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern)  # a name may hold brackets


def _choose(entry: FileEntry, card: Card, directories: list[str]) -> str:
    configs = entry.config.split("|")
    for name in configs:
        if name in card.configs or name in directories or (not card.configs and name in ("", "default")):
            return name
    if not entry.config and "default" in card.configs:
        return "default"
    named = f"{' or '.join(configs)} is none of its configurations" if entry.config else "name a configuration"
    raise MissingPairError(
        f"data set {entry.dataset}: {named}; it has {', '.join(sorted(card.configs) or directories) or 'none'}"
    )
