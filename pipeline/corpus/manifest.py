"""Manifest of a corpus: what its files are, where they come from, and under which licence."""

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from pipeline.corpus.languages import LangPair, normalize_code, split_pair

SPLITS = ("train", "dev", "test")
MANIFEST = "manifest.yaml"
NOTICE = "NOTICE"

_log = logging.getLogger(__name__)
_TEXT_FIELDS = ("name", "title", "licence", "citation", "default_target")
_FILE_FIELDS = ("split", "format", "path", "source", "target", "pair", "sha256", "rows")
_IGNORED = re.compile(r"\..*|(NOTICE|README|LICEN[CS]E|COPYING).*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """One file of a corpus, the two aligned files of a pair, or a part of a data set elsewhere.

    paths: relative to the directory of the corpus, or URLs; source first. columns: field of the file, by name or by
    number from 0 -> BCP-47 code or `document`, for formats that do not say so themselves. source: the name by which
    mixing and curriculum know these rows. tag: marker put before each of their source sentences, such as bt. archive:
    what holds the paths, if anything.
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
        where = f"files: {', '.join(self.paths) or 'an entry'}"
        if self.split not in SPLITS:
            nearest = difflib.get_close_matches(self.split, SPLITS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise ValueError(f"{where}: split {self.split!r} is none of {', '.join(SPLITS)}{hint}")
        for path in self.paths:
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                raise ValueError(f"{where}: the path leaves the corpus directory; move the file into it")
        if self.sha256 and len(self.sha256) != len(self.paths):
            raise ValueError(f"{where}: {len(self.sha256)} sha256 for {len(self.paths)} files; give a list of one each")


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


def read_manifest(directory: Path, path: Path | None = None) -> Manifest:
    """Manifest of the corpus in `directory`, inferred from the names of its files where it has none.

    path: where the manifest is, by default in the directory.

    Raises ValueError if the directory is missing, the manifest is wrong or the names say nothing.
    """
    if not directory.is_dir():
        raise ValueError(f"corpus.path={directory} is not a directory; give one that holds a corpus")
    if path is None and not (directory / MANIFEST).exists():
        manifest = _infer(directory)
        listed = ", ".join(name for entry in manifest.files for name in entry.paths)
        _log.info("%s has no %s; inferred from the names of its files: %s", directory, MANIFEST, listed)
        return manifest
    path = path or directory / MANIFEST
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _manifest_from(content)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error


def corpus_inputs(directory: Path) -> tuple[Path, ...]:
    """Every file of the corpus that fetch reads: the manifest, the notice and the data, where present."""
    manifest = read_manifest(directory)
    named = [directory / MANIFEST, directory / NOTICE]
    return tuple([p for p in named if p.exists()] + [directory / name for e in manifest.files for name in e.paths])


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
    _check_keys(item, _FILE_FIELDS, "files")
    keys = ("path",) if "path" in item else ("source", "target")
    for key in ("split", "format", *keys):
        if key not in item:
            raise ValueError(f"files: an entry has no {key} ({dict(item)}); add it, as in data/README.md")
    rows = item.get("rows")
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 0):
        raise ValueError(f"files: rows={rows!r} is no count; give a number or leave it out")
    sha256 = item.get("sha256") or []
    return FileEntry(
        split=_text(item["split"], "files.split"),
        format=_text(item["format"], "files.format"),
        paths=tuple(_text(item[key], f"files.{key}") for key in keys),
        pair=_pair(_text(item["pair"], "files.pair"), renames) if "pair" in item else None,
        sha256=tuple(_text(s, "files.sha256") for s in (sha256 if isinstance(sha256, list) else [sha256])),
        rows=rows,
    )


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


def _infer(directory: Path) -> Manifest:
    """Manifest of files named `<split>.tsv` and `<split>.<src>-<tgt>.<code>`."""
    names = sorted(path.name for path in directory.iterdir() if not _IGNORED.fullmatch(path.name))
    advice = f"name files <split>.tsv or <split>.<src>-<tgt>.<code>, split {'|'.join(SPLITS)}, or add {MANIFEST}"
    if not names:
        raise ValueError(f"{directory} holds no corpus files; {advice}")
    entries: list[FileEntry] = []
    aligned: dict[tuple[str, str], list[str]] = {}
    for name in names:
        split, _, rest = name.partition(".")
        pair, _, code = rest.rpartition(".")
        if split in SPLITS and rest == "tsv":
            entries.append(FileEntry(split=split, format="multiway_tsv", paths=(name,)))
        elif split in SPLITS and (pair.startswith(f"{code}-") or pair.endswith(f"-{code}")):
            aligned.setdefault((split, pair), []).append(code)
        else:
            raise ValueError(f"{directory / name} has a name that says neither split nor languages; {advice}")
    for (split, pair), codes in aligned.items():
        if pair not in ("-".join(codes), "-".join(reversed(codes))):
            there = ", ".join(f"{split}.{pair}.{code}" for code in codes)
            raise ValueError(f"{directory}: {there} has no counterpart; add the other side of {pair}")
        src, tgt = codes if pair == "-".join(codes) else reversed(codes)
        entries.append(
            FileEntry(
                split=split,
                format="aligned",
                paths=(f"{split}.{pair}.{src}", f"{split}.{pair}.{tgt}"),
                pair=LangPair(normalize_code(src), normalize_code(tgt)),
            )
        )
    return Manifest(name=directory.resolve().name, files=tuple(entries))
