"""The manifest of a corpus without one, inferred from the names of its files and directories."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.corpus.formats import FORMATS
from pipeline.corpus.languages import LONGEST_PAIR, LangPair, normalize_code, split_pair
from pipeline.corpus.manifest import MANIFEST, UNNAMED, FileEntry, Manifest

_IGNORED = re.compile(
    r"\..*|(NOTICE|README|LICEN[CS]E|COPYING|CITATION|SHA256SUMS|MD5SUMS).*|.*\.(xml|ids)(\.gz)?",  # alignments of OPUS
    re.IGNORECASE,
)
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "test": "test", "devtest": "devtest"}
_HELD_OUT = re.compile(r"(news)?(test|tst|dev|valid|eval)[-_]?[0-9]*")  # newstest2014, dev2010
_TABLES = tuple(name for name, format_ in FORMATS.items() if format_.suffix)
_COMPRESSIONS = (".gz", ".xz", ".zst")
_SHARD = re.compile(r"-[0-9]{5}-of-[0-9]{5}(-[0-9a-f]{16})?$")  # train-00000-of-00002.parquet
_USUAL_CASE = re.compile(r"[a-z]{2,3}([-_][A-Z][a-z]{3})?([-_]([A-Z]{2}|[0-9]{3}))?(@[a-z]+)?")  # form of a code
_DEPTH = 3  # levels of directories in a corpus
_ADVICE = (
    f"name files [<source>.][<split>.]<src>-<tgt>.<{'|'.join(_TABLES)}>, the two of a pair "
    "[<source>.][<split>.]<src>-<tgt>.<code>, or a table of many languages <split>.tsv, split train|dev|test, or add "
    f"{MANIFEST}"
)


@dataclass(frozen=True, kw_only=True)
class _Name:
    """The facts that the path of a file names.

    stem: the path without its last part.
    kind: the last part, a format or a language.
    pair: the pair as it is written.
    """

    path: str
    stem: str
    kind: str
    split: str | None
    pair: str | None
    source: str


def infer_manifest(directory: Path) -> Manifest:
    """Return the manifest of the files in a directory, whose names follow data/README.md.

    Raises ValueError for a name that is unclear, for one side of a pair alone, and for a directory without files.
    """
    paths = list(_files(directory))
    if not paths:
        raise ValueError(f"{directory} holds no corpus files; {_ADVICE}")
    _check_twins(directory, paths)
    names = [_name(directory, path) for path in paths]
    has_test = any(name.split == "test" for name in names)
    entries = [_table(directory, name, has_test) for name in names if name.kind in _TABLES]
    sides: dict[str, list[_Name]] = {}
    for name in names:
        if name.kind not in _TABLES:
            sides.setdefault(name.stem, []).append(name)
    entries += [_aligned(directory, group, has_test) for group in sides.values()]
    return Manifest(name=_source([directory.resolve().name]) or "corpus", files=tuple(entries))


def _files(directory: Path) -> Iterator[str]:
    """Yield the paths of a corpus, sorted, without files that hold no rows."""
    for root, directories, files in os.walk(directory, followlinks=True):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        below = Path(root).relative_to(directory)
        if len(below.parts) > _DEPTH:
            raise ValueError(f"{root} is more than {_DEPTH} directories deep; {_ADVICE}")
        for name in sorted(files):
            if not _IGNORED.fullmatch(name):
                yield (below / name).as_posix()


def _check_twins(directory: Path, paths: Sequence[str]) -> None:
    """Raise ValueError if a file exists with two compressions."""
    firsts: dict[str, str] = {}
    for path in paths:
        first = firsts.setdefault(_without(path, _COMPRESSIONS), path)
        if first != path:
            raise ValueError(f"{directory / path} is {first} again, compressed otherwise; remove one of them")


def _name(directory: Path, path: str) -> _Name:
    """Read split, pair and source from the parts of a path between dots and slashes."""
    plain = _without(path, _COMPRESSIONS)
    stem, _, kind = _without(plain, (".txt",)).rpartition(".")
    parts = [_SHARD.sub("", part) for part in re.split(r"[./]", stem) if part]
    splits = {_SPLITS[part.lower()] for part in parts if part.lower() in _SPLITS}
    if len(splits) > 1:
        raise ValueError(f"{directory / path} has a name that says {' and '.join(sorted(splits))}; keep one of them")
    pairs = [part for part in parts if _readings(part)]
    source = [part for part in parts if part.lower() not in _SPLITS and part not in pairs[-1:]]
    if not splits:
        for part in source:
            if _HELD_OUT.fullmatch(part.lower()):
                raise ValueError(
                    f"{directory / path} may be a test set, by {part!r}, but its name says no split; put it in a "
                    f"directory of its split, as test/{path}"
                )
    return _Name(
        path=path,
        stem=stem,
        kind=kind,
        split=splits.pop() if splits else None,
        pair=pairs[-1] if pairs else None,
        source=_source(source),
    )


def _table(directory: Path, name: _Name, has_test: bool) -> FileEntry:
    pair = _pair(directory, name)
    if pair is None and (name.kind != "tsv" or name.split is None):
        raise ValueError(_says_nothing(directory, name))
    return FileEntry(
        split=_split(name, has_test),
        format="multiway_tsv" if pair is None else name.kind,
        paths=(name.path,),
        pair=pair,
        source=name.source,
    )


def _aligned(directory: Path, group: Sequence[_Name], has_test: bool) -> FileEntry:
    """Return the entry of files that differ in their last part alone."""
    first = group[0]
    if first.pair is None:
        if len(group) != 2 or not all(_code(name.kind) for name in group):
            raise ValueError(_says_nothing(directory, first))
        src, tgt = sorted(group, key=lambda name: (name.kind == "en", name.kind))
    else:
        for name in group:
            if not (first.pair.startswith(f"{name.kind}-") or first.pair.endswith(f"-{name.kind}")):
                raise ValueError(_says_nothing(directory, name))
        ordered = [side for side in (group, group[::-1]) if "-".join(name.kind for name in side) == first.pair]
        if not ordered:
            paths = ", ".join(name.path for name in group)
            raise ValueError(f"{directory}: {paths} has no counterpart; add the other side of {first.pair}")
        src, tgt = ordered[0]
    return FileEntry(
        split=_split(first, has_test),
        format="aligned",
        paths=(src.path, tgt.path),
        pair=LangPair(normalize_code(src.kind), normalize_code(tgt.kind)),
        source=first.source,
    )


def _split(name: _Name, has_test: bool) -> str:
    """Return the split of a file. A devtest is the test set, or the dev set of a corpus with a test set."""
    if name.split == "devtest":
        return "dev" if has_test else "test"
    return name.split or "train"


def _pair(directory: Path, name: _Name) -> LangPair | None:
    """Return the pair of a name. Of several readings, the one whose codes have their usual case is taken."""
    if name.pair is None:
        return None
    readings = _readings(name.pair)
    usual = {
        LangPair(normalize_code(src), normalize_code(tgt))
        for src, tgt in split_pair(name.pair)
        if _USUAL_CASE.fullmatch(src) and _USUAL_CASE.fullmatch(tgt) and len(readings) > 1
    }
    if len(readings) > 1 and len(usual) != 1:
        listed = " or ".join(sorted(f"{pair.src}:{pair.tgt}" for pair in readings))
        raise ValueError(
            f"{directory / name.path}: {name.pair!r} may be {listed}; write the one you mean with an underscore in its "
            "code, as pt_BR-en"
        )
    return (usual or readings).pop()


def _readings(text: str) -> set[LangPair]:
    """Return every pair that a part of a name may mean."""
    if len(text) > LONGEST_PAIR:
        return set()
    codes = ((_code(src), _code(tgt)) for src, tgt in split_pair(text))
    return {LangPair(src, tgt) for src, tgt in codes if src and tgt and src != tgt}


def _code(text: str) -> str | None:
    try:
        return normalize_code(text)
    except ValueError:
        return None  # no language; the caller raises an error with the whole name


def _source(parts: Sequence[str]) -> str:
    return UNNAMED.sub("-", ".".join(parts)).strip("-")


def _without(path: str, suffixes: tuple[str, ...]) -> str:
    return next((path.removesuffix(suffix) for suffix in suffixes if path.endswith(suffix)), path)


def _says_nothing(directory: Path, name: _Name) -> str:
    return f"{directory / name.path} has a name that says neither split nor languages; {_ADVICE}"
