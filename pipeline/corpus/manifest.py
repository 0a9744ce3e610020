"""The manifest of a corpus: its files, where they come from, and their licence."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pipeline.corpus.fetched import DOCUMENT
from pipeline.corpus.formats import FORMATS, check_entry, check_format
from pipeline.corpus.languages import LangPair, normalize_code, split_pair
from pipeline.corpus.manifest_fields import FileFields, ManifestFields
from pipeline.corpus.yaml_text import load_yaml
from pipeline.schema import build
from pipeline.spelling import did_you_mean

SPLITS = ("train", "dev", "test")
MANIFEST = "manifest.yaml"
NOTICE = "NOTICE"

_log = logging.getLogger(__name__)
_ENTRY_TEXTS = ("tag", "licence", "citation", "archive", "dataset", "config", "part", "revision")
UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")  # characters that a name of a source must not have
_DOTS = re.compile(r"\.+")  # a name becomes that of a directory, which `..` would leave
_TAG = re.compile(r"[a-z0-9]+")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_SCHEMES = ("https", "http", "file")
PLACEHOLDER = re.compile(r"\{(src|tgt|pair|sorted|first|second)(?::([a-z0-9-]+))?\}")  # filled by sources/templates.py
_COLUMNS_ADVICE = 'write them as {german: "de", english: "en"}, or by number from 0 for a tsv'


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of a corpus, the two aligned files of a pair, or a part of a data set elsewhere.

    The fields are in the key of the stage that fetches the entry, so their names must not change.

    format: a name in `pipeline.corpus.formats.FORMATS`.
    paths: relative to the directory of the corpus, or URLs; source first.
    pair: languages of the files, if the files do not name them.
    columns: BCP-47 code, or `document`, by the name of a field or its number from 0.
    sha256: one checksum for each path, or none.
    rows: number of rows, without the header.
    source: name of these rows in mixing, curriculum and reports; `name` in YAML.
    tag: marker that is put before each of their source sentences, such as bt.
    archive: path or URL of the archive that holds the paths, if any.
    dataset: name of a hub's data set, or an mtdata id.
    config, part, revision: configuration, split and revision of a hub's data set.
    streaming: whether a hub's files are deleted once they are read.
    where: value, as text, that a field of a hub's data set must have; other rows are not read.
    """

    split: str
    format: str
    paths: tuple[str, ...] = ()
    pair: LangPair | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    sha256: tuple[str, ...] = ()
    rows: int | None = None
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
    where: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"files: {self.label}"
        if self.split not in SPLITS:
            hint = did_you_mean(self.split, SPLITS)
            raise ValueError(f"{where}: split {self.split!r} is none of {', '.join(SPLITS)}{hint}")
        for path in (*self.paths, self.archive, self.dataset):
            _check_path(where, path)
        if self.sha256 and len(self.sha256) != len(self.paths):
            raise ValueError(f"{where}: {len(self.sha256)} sha256 for {len(self.paths)} files; give a list of one each")
        if self.source and (UNNAMED.search(self.source) or _DOTS.fullmatch(self.source)):
            raise ValueError(f"{where}: name {self.source!r} is no word; use letters, digits, dots, - and _")
        if self.tag and not _TAG.fullmatch(self.tag):
            raise ValueError(f"{where}: tag {self.tag!r} is no marker; use lower-case letters and digits, as in bt")

    @property
    def label(self) -> str:
        """The name of the entry in messages."""
        return ", ".join(self.paths) or self.dataset or "an entry"

    @property
    def template(self) -> bool:
        """True if the entry has placeholders such as {src}, so that it stands for one entry for each pair."""
        texts = (*self.paths, *self.columns, *self.columns.values(), self.archive, self.dataset, self.config, self.part)
        return any(PLACEHOLDER.search(text) for text in texts)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a corpus, read from manifest.yaml or inferred from the names of its files.

    codes: BCP-47 code by the name of a column, if the two differ.
    """

    name: str
    files: tuple[FileEntry, ...]
    title: str = ""
    licence: str = ""
    citation: str = ""
    default_target: str | None = None
    codes: Mapping[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> set[str]:
        return {entry.source or self.name for entry in self.files}


def read_manifest(directory: Path, path: Path | None = None, *, setting: str = "corpus.path") -> Manifest:
    """Read the manifest of the corpus in `directory`, or infer it from the names of its files.

    path: path of the manifest, by default in the directory. With a path, the directory may be missing.
    setting: configuration key of the directory, for messages.
    Raises ValueError if the directory is missing, the manifest is wrong, or the names of the files are unclear.
    """
    if path is None and not directory.is_dir():
        variable = {"corpus.path": "CORPUS", "corpus.add": "CORPUS_ADD"}[setting]
        raise ValueError(
            f"{setting}={directory} is not a directory; give one that holds a corpus: {variable}=path/to/dir"
        )
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
    """Return whether a path of an entry is a URL."""
    return _URL.match(path) is not None


def to_bcp47(code: str, renames: Mapping[str, str]) -> str:
    """Return the BCP-47 code of a column, from the manifest or by normalisation. Raises ValueError if malformed."""
    return renames[code] if code in renames else normalize_code(code)


def _manifest_from(content: Any) -> Manifest:
    if not isinstance(content, dict):
        raise ValueError("is no mapping; see data/README.md for an example")
    files = content.get("files")
    if isinstance(files, list):
        files = [_without_nulls(file) if isinstance(file, dict) else file for file in files]
    fields = build(ManifestFields, _without_nulls({**content, "files": files}))
    if not fields.name or UNNAMED.search(fields.name) or _DOTS.fullmatch(fields.name):
        raise ValueError(f"name {fields.name!r} is no name; use letters, digits, dots, - and _, and title for the rest")
    if not fields.files:
        raise ValueError("files is empty; list the files of every split")
    renames = {column: normalize_code(code) for column, code in fields.codes.items()}
    return Manifest(
        name=fields.name,
        title=fields.title,
        licence=fields.licence,
        citation=fields.citation,
        default_target=to_bcp47(fields.default_target, renames) if fields.default_target else None,
        codes=renames,
        files=tuple(_entry_from(item, renames) for item in fields.files),
    )


def _without_nulls(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the fields that have a value: null is the same as a field that is left out."""
    return {key: value for key, value in fields.items() if value is not None}


def _entry_from(item: FileFields, renames: Mapping[str, str]) -> FileEntry:
    check_format(item.format)
    if item.rows is not None and item.rows < 0:
        raise ValueError(f"files: rows={item.rows} is no count; give a number or leave it out")
    entry = FileEntry(
        split=item.split,
        format=item.format,
        paths=_paths(item),
        pair=_pair(item.pair, renames) if item.pair else None,
        columns={} if item.columns is None else _columns(item, renames),
        sha256=tuple(text.lower() for text in _listed(item.sha256)),
        rows=item.rows,
        source=item.name,
        streaming=item.streaming,
        where={field_name: _value(value, field_name) for field_name, value in item.where.items()},
        **{key: getattr(item, key) for key in _ENTRY_TEXTS},
    )
    check_entry(entry)
    return entry


def _paths(item: FileFields) -> tuple[str, ...]:
    """Return the files of an entry: `path`, one or a list, or `source` and `target`."""
    sides = {key: getattr(item, key) for key in ("source", "target") if getattr(item, key)}
    if item.path:
        if sides:
            raise ValueError(
                f"files: {item.path!r}: path and {next(iter(sides))} do not go together; write path: [source, target], "
                "and name for what to call these rows"
            )
        return _listed(item.path)
    fields = {0: tuple(sides), 1: ("path",), 2: ("source", "target")}[FORMATS[item.format].needs.num_paths]
    for key in fields:
        if key not in sides:
            raise ValueError(f"files: an entry of format {item.format} has no {key}; add it, as in data/README.md")
    return tuple(sides.values())


def _listed(value: str | list[str]) -> tuple[str, ...]:
    """Return one text, or the texts of a list, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def _columns(item: FileFields, renames: Mapping[str, str]) -> dict[str, str]:
    """Return the code, or `document`, by field. In a list, null is a field that is not read."""
    value = fields = item.columns
    if isinstance(value, list):
        numbered = FORMATS[item.format].needs.numbered
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
    """Return the pair of an entry. The codes of the corpus are not known here, so the form of the codes decides."""
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


def _value(value: Any, field_name: str) -> str:
    """Return the text of a value in `where`: true and false are those of JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else _text(value, f"files.where.{field_name}")


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f'{key}: {value!r} is no text; quote it ("no" is Norwegian, no is a boolean)')
    return value


def _check_path(where: str, path: str) -> None:
    url = _URL.match(path)
    if url is not None:
        if url["scheme"] not in _SCHEMES:
            raise ValueError(f"{where}: a URL of {url['scheme']} cannot be read; use {', '.join(_SCHEMES)}")
    elif PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(f"{where}: the path leaves the corpus directory; move the file into it")
