"""Data sets of mtdata's index (OPUS, WMT and several hundred thousand others), by its optional package."""

import importlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.corpus.formats import check_entry
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.sources.codes import from_iso639_3, own_code
from pipeline.corpus.sources.download import Patience
from pipeline.corpus.sources.locate import local_path
from pipeline.corpus.tables import BATCH_ROWS, Table
from pipeline.files import private_directory
from pipeline.spelling import nearest_names

_BATCH_CHARS = 8 << 20  # characters of a batch, of at most 4 bytes each

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The description of a data set in the index.

    record: its entry in the index.
    languages: its languages as the index writes them: ISO 639-3, with script or country.
    citation: BibTeX.
    """

    name: str
    record: Any
    languages: tuple[str, str]
    citation: str


def find_recipe(entry: FileEntry) -> Recipe:
    """Return the recipe of an entry's data set, with the languages in the order of its name or the other one.

    Raises ValueError if the package is not installed, or the index has no such data set of two languages.
    """
    check_entry(entry)
    index, model = _index(), importlib.import_module("mtdata.entry")
    *name, first, second = entry.dataset.split("-") if entry.dataset.count("-") == 4 else ("", "", "")
    for languages in ((first, second), (second, first)):
        try:
            identity = model.DatasetId.parse("-".join([*name, *languages]))
        except Exception as error:
            raise ValueError(
                f"data set {entry.dataset} is not of the form Group-name-version-deu-eng ({error}); "
                "`mtdata list` shows them"
            ) from error
        if identity in index:
            record = index[identity]
            citation = "\n\n".join(index.ref_db.get_bibtex(key).strip() for key in record.cite or ())
            pair = tuple(str(language) for language in identity.langs)
            return Recipe(name=str(identity), record=record, languages=(pair[0], pair[1]), citation=citation)
    near = [str(i) for i in index.entries if i.name == name[1] and i.group == name[0]]
    near = nearest_names(entry.dataset, near or map(str, index.entries), cutoff=0.6)
    raise ValueError(
        f"data set {entry.dataset} is not in mtdata's index; did you mean {' or '.join(near) or 'another'}? "
        "`mtdata list` shows them"
    )


def open_mtdata(
    entry: FileEntry, files: Path, cache: Path, renames: Mapping[str, str], *, patience: Patience | None = None
) -> Table:
    """Return the rows of a data set of mtdata's index, downloaded as other files and read by mtdata's parsers.

    The languages are those of the entry's pair or columns (`{deu: de}`), or else those of the index in BCP-47. Rows
    that mtdata calls noise are left out, such as those with an empty side.
    Raises ValueError as `find_recipe` and `local_path` do, and for files that cannot be parsed.
    """
    recipe = find_recipe(entry)
    codes = _codes(entry, recipe, renames)
    paths = _paths(recipe, files, cache, patience)
    return Table(columns=codes, batches=_batches(recipe, paths, codes))


def _index() -> Any:
    """Return the index, which the package makes at its first use, in half a minute, and keeps as a pickle.

    A pickle can run any program. So the index is not below the artifacts, which may come from somebody else.
    """
    if "MTDATA" not in os.environ:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        os.environ["MTDATA"] = str(private_directory(caches / "babelshard", "XDG_CACHE_HOME or MTDATA") / "mtdata")
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)  # because it logs the whole index
    try:
        Path(os.environ["MTDATA"]).mkdir(parents=True, exist_ok=True)
        return importlib.import_module("mtdata.index").INDEX
    except ModuleNotFoundError as error:
        raise ValueError(
            f"format mtdata needs the package mtdata, which is not installed ({error}); "
            "install it, as .venv/bin/pip install 'mtdata==0.5.1'"
        ) from error
    finally:
        logging.disable(disabled)


def _codes(entry: FileEntry, recipe: Recipe, renames: Mapping[str, str]) -> tuple[str, str]:
    named = {**renames, **entry.columns}
    if not entry.columns and entry.pair is not None:
        named |= _sides(entry.pair, recipe)
    first, second = (named.get(code) or from_iso639_3(code) for code in recipe.languages)
    if first == second:
        raise ValueError(f"data set {recipe.name}: both sides are {first}; correct columns")
    return first, second


def _sides(pair: LangPair, recipe: Recipe) -> dict[str, str]:
    """Return the codes of a pair by those of the index. Raises ValueError if they are other languages."""
    sides: dict[str, str] = {}
    for code in recipe.languages:
        tag = from_iso639_3(code)
        matches = [c for c in (pair.src, pair.tgt) if own_code(c, "iso639-3", {}) == own_code(tag, "iso639-3", {})]
        sides[code] = tag if tag in matches else next(iter(matches), "")
    if set(sides.values()) != {pair.src, pair.tgt}:
        raise ValueError(
            f"data set {recipe.name} holds {' and '.join(recipe.languages)}, not the pair {pair}; correct either, or "
            f"say which is which, as columns: {{{recipe.languages[0]}: {pair.src}, {recipe.languages[1]}: {pair.tgt}}}"
        )
    return sides


def _paths(recipe: Recipe, files: Path, cache: Path, patience: Patience | None) -> list[Any]:
    record = recipe.record
    if record.ext == "hfds":
        meta = record.meta
        raise ValueError(
            f"data set {recipe.name} is on a hub; read it as format: huggingface, dataset: {meta['orig_id']}, "
            f"config: {meta.get('config')}, part: {meta.get('split')}"
        )
    if record.in_ext == "opus_xces":
        names = [(record.url, ""), *((url, "") for url in record.in_paths)]
    elif isinstance(record.url, str):
        names = [(record.url, record.filename)]
    else:
        names = [(url, "") for url in record.url]
    paths = [local_path(url, files, cache, name=name, patience=patience) for url, name in names]
    if not record.is_archive:
        return list(paths)
    try:
        members = importlib.import_module("mtdata.cache").Cache(cache / "mtdata").get_local_in_paths(paths[0], record)
    except Exception as error:
        raise ValueError(f"data set {recipe.name}: {paths[0]}: {error}; fetch it again") from error
    return list(members)


def _batches(recipe: Recipe, paths: list[Any], codes: tuple[str, str]) -> Iterator[pa.RecordBatch]:
    sides: tuple[list[str], list[str]] = ([], [])
    size = 0
    for first, second in _rows(recipe, paths):
        sides[0].append(first)
        sides[1].append(second)
        size += len(first) + len(second)
        if len(sides[0]) == BATCH_ROWS or size >= _BATCH_CHARS:
            yield pa.RecordBatch.from_arrays([pa.array(side, pa.string()) for side in sides], names=list(codes))
            sides, size = ([], []), 0
    if sides[0]:
        yield pa.RecordBatch.from_arrays([pa.array(side, pa.string()) for side in sides], names=list(codes))


def _rows(recipe: Recipe, paths: list[Any]) -> Iterator[tuple[str, str]]:
    parser = importlib.import_module("mtdata.parser").Parser
    number = noise = 0
    try:
        for row in parser(paths, ext=recipe.record.in_ext or recipe.record.ext, ent=recipe.record).read_segs(False):
            number += 1
            if recipe.record.is_noisy(seg1=row[0], seg2=row[1]):
                noise += 1
            else:
                yield row[0], row[1]
    except GeneratorExit:
        raise
    except Exception as error:
        files = ", ".join(map(str, paths))
        raise ValueError(
            f"data set {recipe.name}: cannot be read after row {number} of {files} ({type(error).__name__}: {error}); "
            "fetch it again"
        ) from error
    _log.info("data set %s: %d rows, %d of them noise", recipe.name, number, noise)
