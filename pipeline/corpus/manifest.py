"""Manifest of a corpus: what its files are, where they come from, and under which licence."""

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.corpus.fetched import DOCUMENT
from pipeline.corpus.formats import NEEDS, check_entry
from pipeline.corpus.languages import LangPair, normalize_code, split_pair
from pipeline.corpus.yaml_text import load_yaml

SPLITS = ("train", "dev", "test")
MANIFEST = "manifest.yaml"
NOTICE = "NOTICE"

_log = logging.getLogger(__name__)
_TEXT_FIELDS = ("name", "title", "licence", "citation", "default_target")
_ENTRY_TEXTS = ("tag", "licence", "citation", "archive", "dataset", "config", "part", "revision")
_ENTRY_FIELDS = (
    *("split", "format", "path", "source", "target", "pair", "columns", "name", "sha256", "rows", "streaming"),
    *_ENTRY_TEXTS,
)
UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")  # what no name of a source has
_TAG = re.compile(r"[a-z0-9]+")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_SCHEMES = ("https", "http", "file")
PLACEHOLDER = re.compile(r"\{(src|tgt|pair|sorted|first|second)(?::([a-z0-9-]+))?\}")  # of sources/templates.py
_COLUMNS_ADVICE = 'write them as {german: "de", english: "en"}, or by number from 0 for a tsv'


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of a corpus, the two aligned files of a pair, or a part of a data set elsewhere.

    paths: relative to the directory of the corpus, or URLs; source first. columns: field of the file, by name or by
    number from 0 -> BCP-47 code or `document`, for formats that do not say so themselves. source: the name (`name` in
    YAML) by which mixing and curriculum know these rows. tag: marker put before each of their source sentences, such
    as bt. archive: what holds the paths, if anything.
    dataset, config, part, revision: of a hub data set (part is its name of the split); dataset is also an mtdata id.
    """

    split: str
    format: str  # a name in pipeline.corpus.readers.FORMATS
    paths: tuple[str, ...] = ()
    pair: LangPair | None = None  # what the files hold, where they do not say so themselves
    columns: Mapping[str, str] = field(default_factory=dict)
    sha256: tuple[str, ...] = ()  # one a path, or none
    rows: int | None = None  # without the header
    source: str = ""
    tag: str = ""
    licence: str = ""
    citation: str = ""
    archive: str = ""
    dataset: str = ""
    config: str = ""
    part: str = ""
    revision: str = ""
    streaming: bool = False

    def __post_init__(self) -> None:
        where = f"files: {self.label}"
        if self.split not in SPLITS:
            nearest = difflib.get_close_matches(self.split, SPLITS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise ValueError(f"{where}: split {self.split!r} is none of {', '.join(SPLITS)}{hint}")
        for path in (*self.paths, self.archive, self.dataset):
            _check_path(where, path)
        if self.sha256 and len(self.sha256) != len(self.paths):
            raise ValueError(f"{where}: {len(self.sha256)} sha256 for {len(self.paths)} files; give a list of one each")
        if self.source and UNNAMED.search(self.source):
            raise ValueError(f"{where}: name {self.source!r} is no word; use letters, digits, dots, - and _")
        if self.tag and not _TAG.fullmatch(self.tag):
            raise ValueError(f"{where}: tag {self.tag!r} is no marker; use lower-case letters and digits, as in bt")

    @property
    def label(self) -> str:
        """What to call the entry in a message."""
        return ", ".join(self.paths) or self.dataset or "an entry"

    @property
    def template(self) -> bool:
        """Whether the entry stands for several, one a pair, by placeholders such as {src}."""
        texts = (*self.paths, *self.columns, *self.columns.values(), self.archive, self.dataset, self.config, self.part)
        return any(PLACEHOLDER.search(text) for text in texts)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a corpus, as written in manifest.yaml or inferred from the names of its files."""

    name: str
    files: tuple[FileEntry, ...]
    title: str = ""
    licence: str = ""
    citation: str = ""
    default_target: str | None = None
    codes: Mapping[str, str] = field(default_factory=dict)  # column name -> BCP-47, where they differ

    @property
    def sources(self) -> set[str]:
        return {entry.source or self.name for entry in self.files}


def read_manifest(directory: Path, path: Path | None = None, *, setting: str = "corpus.path") -> Manifest:
    """Manifest of the corpus in `directory`, inferred from the names of its files where it has none.

    path: where the manifest is, by default in the directory, which may be missing if all files are elsewhere.
    setting: what named the directory, for messages.
    Raises ValueError if the directory is missing, the manifest is wrong or the names say nothing.
    """
    if path is None and not directory.is_dir():
        raise ValueError(f"{setting}={directory} is not a directory; give one that holds a corpus")
    if path is None and not (directory / MANIFEST).exists():
        from pipeline.corpus.inference import infer_manifest

        manifest = infer_manifest(directory)
        listed = ", ".join(name for entry in manifest.files for name in entry.paths)
        _log.info("%s has no %s; inferred from the names of its files: %s", directory, MANIFEST, listed)
        return manifest
    path = path or directory / MANIFEST
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
        return _manifest_from(content)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); correct its path or its permissions") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def is_url(path: str) -> bool:
    """Whether a path of an entry is elsewhere."""
    return _URL.match(path) is not None


def to_bcp47(code: str, renames: Mapping[str, str]) -> str:
    """BCP-47 code of a column: as the manifest says, or by normalisation. Raises ValueError if malformed."""
    return renames[code] if code in renames else normalize_code(code)


def _manifest_from(content: Any) -> Manifest:
    if not isinstance(content, dict):
        raise ValueError("is no mapping; see data/README.md for an example")
    _check_keys(content, (*_TEXT_FIELDS, "codes", "files"), "manifest")
    texts = {key: _text(content[key], key) for key in _TEXT_FIELDS if content.get(key) is not None}
    if "name" not in texts:
        raise ValueError("field name is missing; give the corpus a short name")
    if not texts["name"] or UNNAMED.search(texts["name"]):
        raise ValueError(
            f"name {texts['name']!r} is no name; use letters, digits, dots, - and _, and title for the rest"
        )
    renames: dict[str, str] = {}
    for column, code in _mapping(content.get("codes") or {}, "codes").items():
        renames[_text(column, "codes")] = normalize_code(_text(code, f"codes.{column}"))
    files = content.get("files")
    if not isinstance(files, list) or not files:
        raise ValueError("field files is missing or empty; list the files of every split")
    if "default_target" in texts:
        texts["default_target"] = to_bcp47(texts["default_target"], renames)
    entries = tuple(_entry_from(_mapping(item, "files"), renames) for item in files)
    return Manifest(
        name=texts["name"],
        title=texts.get("title", ""),
        licence=texts.get("licence", ""),
        citation=texts.get("citation", ""),
        default_target=texts.get("default_target"),
        codes=renames,
        files=entries,
    )


def _entry_from(item: Mapping[Any, Any], renames: Mapping[str, str]) -> FileEntry:
    _check_keys(item, _ENTRY_FIELDS, "files")
    for key in ("split", "format"):
        if key not in item:
            raise ValueError(f"files: an entry has no {key} ({dict(item)}); add it, as in data/README.md")
    name = _text(item["format"], "files.format")
    rows = item.get("rows")
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 0):
        raise ValueError(f"files: rows={rows!r} is no count; give a number or leave it out")
    streaming = item.get("streaming", False)
    if not isinstance(streaming, bool):
        raise ValueError(f"files: streaming={streaming!r} is neither true nor false; choose one")
    checksums = [] if item.get("sha256") is None else item["sha256"]
    entry = FileEntry(
        split=_text(item["split"], "files.split"),
        format=name,
        paths=_paths(item, name),
        pair=_pair(_text(item["pair"], "files.pair"), renames) if "pair" in item else None,
        columns=_columns(item["columns"], name, renames) if "columns" in item else {},
        sha256=tuple(text.lower() for text in _texts(checksums, "files.sha256")),
        rows=rows,
        source=_text(item["name"], "files.name") if "name" in item else "",
        streaming=streaming,
        **{key: _text(item[key], f"files.{key}") for key in _ENTRY_TEXTS if key in item},
    )
    check_entry(entry)
    return entry


def _paths(item: Mapping[Any, Any], name: str) -> tuple[str, ...]:
    """Files of an entry: `path`, one or a list, or `source` and `target`."""
    sides = [key for key in ("source", "target") if key in item]
    if "path" in item:
        if sides:
            raise ValueError(
                f"files: {item['path']!r}: path and {sides[0]} do not go together; write path: [source, target], and "
                "name for what to call these rows"
            )
        return _texts(item["path"], "files.path")
    needs = NEEDS.get(name)
    if needs is None and not sides:
        return ()
    for key in ("source", "target") if needs is None or needs.num_paths == 2 else ("path",):
        if key not in item:
            raise ValueError(f"files: an entry has no {key} ({dict(item)}); add it, as in data/README.md")
    return tuple(_text(item[key], f"files.{key}") for key in ("source", "target"))


def _columns(value: Any, name: str, renames: Mapping[str, str]) -> dict[str, str]:
    """Field -> code or `document`, of a mapping or of a list, where null is a field that is not read."""
    fields = value
    if isinstance(value, list):
        numbered = name in NEEDS and NEEDS[name].numbered
        fields = {
            index if numbered else _text(code, "files.columns"): code
            for index, code in enumerate(value)
            if code is not None
        }
    if not isinstance(fields, dict) or not fields:
        raise ValueError(f"files.columns: {value!r} names no fields; {_COLUMNS_ADVICE}")
    columns: dict[str, str] = {}
    for key, code in fields.items():
        field_name = str(key) if isinstance(key, int) and not isinstance(key, bool) else _text(key, "files.columns")
        text = _text(code, f"files.columns.{field_name}")
        column = text if text == DOCUMENT or PLACEHOLDER.search(text) else to_bcp47(text, renames)
        if column in columns.values():
            raise ValueError(f"files.columns: several fields are {column}; keep one of them")
        columns[field_name] = column
    return columns


def _pair(text: str, renames: Mapping[str, str]) -> LangPair:
    """Pair written in a manifest; the codes are not known yet, so that a cut is judged by its form."""
    readings = set()
    for source, target in split_pair(text):
        try:
            readings.add(LangPair(to_bcp47(source, renames), to_bcp47(target, renames)))
        except ValueError as error:
            _log.debug("files: pair %r is not %s:%s: %s", text, source, target, error)
    if not readings:
        raise ValueError(f"files: pair {text!r} has no two BCP-47 codes; write it as de-en, or src:tgt")
    if len(readings) > 1:
        listed = " or ".join(sorted(f"{pair.src}:{pair.tgt}" for pair in readings))
        raise ValueError(f"files: pair {text!r} may be {listed}; write the one you mean")
    return readings.pop()


def _check_keys(content: Mapping[Any, Any], known: tuple[str, ...], what: str) -> None:
    for key in content:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise ValueError(f"{what}: unknown field {key!r}{hint} (the fields are {', '.join(known)})")


def _mapping(value: Any, key: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{key}: {value!r} is no mapping; see data/README.md for an example")
    return value


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f'{key}: {value!r} is no text; quote it ("no" is Norwegian, no is a boolean)')
    return value


def _texts(value: Any, key: str) -> tuple[str, ...]:
    """One text or a list of them."""
    return tuple(_text(item, key) for item in (value if isinstance(value, list) else [value]))


def _check_path(where: str, path: str) -> None:
    url = _URL.match(path)
    if url is not None:
        if url["scheme"] not in _SCHEMES:
            raise ValueError(f"{where}: a URL of {url['scheme']} cannot be read; use {', '.join(_SCHEMES)}")
    elif PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{where}: the path leaves the corpus directory; move the file into it")
