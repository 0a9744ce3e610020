"""The first half of the DAG: from a corpus to the cleaned rows of its pairs: fetch -> split -> held_out -> clean."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

from pipeline.config import ROOT
from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.fetched import DOCUMENT, FetchedTable, read_tables
from pipeline.corpus.languages import LangPair, parse_pairs
from pipeline.corpus.manifest import NOTICE, SPLITS, FileEntry, Manifest, read_manifest
from pipeline.corpus.sources.copies import files_here
from pipeline.corpus.sources.templates import expand, has_templates, named_pairs
from pipeline.stage import Artifact, Stage, Store, file_sha256
from pipeline.tasks import DataConfig, shard_runner, side_by_side

logger = logging.getLogger(__name__)

_KNOWLEDGE = ("py3langid", "langcodes", "fonttools")  # packages whose data decide what rules remove
_SPLIT = "split"  # name of the stage
ALL = "all"  # in place of pairs: every one that the training files name


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus, with what is added to it, as far as some pairs need it. tables: with the artifact that holds each.

    split_off: parts of a training table, by the pair that lacks dev or test. held_out: index of dev and test texts.
    test_texts: index of the test texts alone, which no dev row may share.
    """

    manifest: Manifest
    added: tuple[Manifest, ...]
    notice: str
    pairs: tuple[LangPair, ...]
    tables: tuple[tuple[FetchedTable, Artifact], ...]
    split_off: Mapping[LangPair, Artifact]
    held_out: Artifact | None
    test_texts: Artifact | None

    def tables_of(self, pair: LangPair, split: str | None = None) -> list[tuple[FetchedTable, Artifact]]:
        """Tables with both languages of a pair, of one split or of all.

        Dev and test are those of the first corpus that has them, or else what is split off for the pair, so that
        neither what is added to a corpus nor the other pairs change what is measured.
        """
        found = [item for item in self.tables if _has(item[0], pair)]
        chosen = {"train": [item for item in found if item[0].split == "train"]}
        place = _places((self.manifest, *self.added))
        for name in SPLITS[1:]:
            items = [item for item in found if item[0].split == name]
            given = [item for item in items if item[1].stage != _SPLIT]
            first = min((place[table.source] for table, _ in given), default=0)
            own = [item for item in items if item[1] == self.split_off.get(pair)]
            chosen[name] = [item for item in given if place[item[0].source] == first] or own
        return [item for item in found if split in (None, item[0].split) and item in chosen[item[0].split]]

    def sources_of(self, pair: LangPair) -> list[tuple[str, int]]:
        """Name of each training table of a pair, and at most so many rows as it has of the pair."""
        tables = [table for table, _ in self.tables_of(pair, "train")]
        return [(table.source, _most_rows(table, pair)) for table in tables]


def prepare_corpus(config: CorpusConfig, pairs: Sequence[str], store: Store, data: DataConfig) -> Corpus:
    """Fetch what the pairs need, and every dev and test set; split off what they lack; index what is held out.

    pairs: as the user wrote them, or ALL.
    """
    corpora = _corpora(config, pairs, store)
    parsed = _pairs(pairs, corpora)
    needed = [
        partial(each.tables, entry)
        for each in corpora
        for entry in each.manifest.files
        if entry.split != "train" or any({p.src, p.tgt} <= set(each.codes(entry)) for p in parsed)
    ]
    tables = [item for of_entry in side_by_side(needed, at_once=data.stages_at_once) for item in of_entry]
    manifest, *added = [each.manifest for each in corpora]
    tables, split_off = _with_held_out(config, store, parsed, tables, _places((manifest, *added)))
    notices = [each.files / NOTICE for each in corpora]
    return Corpus(
        manifest=manifest,
        added=tuple(added),
        notice="\n".join(path.read_text(encoding="utf-8") for path in notices if path.is_file()),
        pairs=parsed,
        tables=tuple(tables),
        split_off=split_off,
        held_out=_index(config, store, tables, SPLITS[1:]),
        test_texts=_index(config, store, tables, ["test"]),
    )


def clean(config: CorpusConfig, store: Store, corpus: Corpus, pair: LangPair, data: DataConfig) -> Artifact:
    """Cleaned rows of one pair."""
    found = corpus.tables_of(pair)
    rows = sum(table.rows for table, _ in found)
    artifacts = {f"table {number}": artifact for number, (_, artifact) in enumerate(found)}

    def run(out: Path) -> None:
        from pipeline.corpus.cleaning.clean import clean

        clean(
            config,
            pair,
            tables=[table for table, _ in found],
            held_out=corpus.held_out.path if corpus.held_out else None,
            test_texts=corpus.test_texts.path if corpus.test_texts else None,
            out=out,
            shard_rows=data.shard_rows,
            run_shards=shard_runner(data, rows, out / "log", f"clean {pair.name}"),
        )

    slice_ = {
        "pair": pair.name,
        "rules": asdict(config.rules),
        "keep_removed": config.keep_removed,
        "knowledge": {"unicode": unidata_version, **{name: version(name) for name in _KNOWLEDGE}},
    }
    indexes = {"held_out": corpus.held_out, "test texts": corpus.test_texts}
    inputs = {**artifacts, **{name: index for name, index in indexes.items() if index is not None}}
    stage = Stage(name="clean", version=4, config=slice_, inputs=inputs, run=run, label=pair.name, resumable=True)
    return store.get(stage)


class _Fetched:
    """Fetches entries of a manifest when they are asked for."""

    def __init__(self, store: Store, manifest: Manifest, files: Path) -> None:
        self.store, self.manifest, self.files = store, manifest, files
        self._tables: dict[int, list[tuple[FetchedTable, Artifact]]] = {}  # by identity: an entry has no hash

    def codes(self, entry: FileEntry) -> Sequence[str]:
        """Languages of an entry, without reading it where its description says them."""
        if entry.pair is not None:
            return (entry.pair.src, entry.pair.tgt)
        if entry.columns:
            return [code for code in entry.columns.values() if code != DOCUMENT]
        return [code for table, _ in self.tables(entry) for code in table.codes]

    def tables(self, entry: FileEntry) -> list[tuple[FetchedTable, Artifact]]:
        """Tables of an entry of the manifest. Its files are hashed once, however often they are asked for."""
        if id(entry) not in self._tables:
            self._tables[id(entry)] = self._fetch(entry)
        return self._tables[id(entry)]

    def _fetch(self, entry: FileEntry) -> list[tuple[FetchedTable, Artifact]]:
        def run(out: Path) -> None:
            from pipeline.corpus.fetch import fetch

            fetch(entry, self.manifest, files=self.files, cache=self.store.root / "downloads", out=out)

        described = {key: value for key, value in asdict(entry).items() if value}
        about = {key: getattr(self.manifest, key) for key in ("name", "licence", "citation")}
        slice_ = {
            "entry": described,
            "manifest": {**about, "codes": dict(self.manifest.codes)},
            "sha256": [file_sha256(path) for path in files_here(entry, self.files)],
        }
        label = f"{self.manifest.name} {entry.split} {entry.pair.name if entry.pair else ''}".strip()
        artifact = self.store.get(Stage(name="fetch", version=2, config=slice_, run=run, label=label))
        return [(table, artifact) for table in read_tables(artifact.path)]


def _corpora(config: CorpusConfig, pairs: Sequence[str], store: Store) -> list[_Fetched]:
    """The corpus and those that are added. Raises ValueError where two of them call a source by one name."""
    corpora: list[_Fetched] = []
    for number, directory in enumerate((config.path, *config.add)):
        place = ROOT / Path(directory).expanduser()
        named = ROOT / config.manifest if config.manifest and not number else None
        manifest = read_manifest(place, named, setting="corpus.add" if number else "corpus.path")
        if has_templates(manifest):
            if list(pairs) == [ALL]:
                raise ValueError(f"corpus {manifest.name} has an entry for each pair: name pairs, as pairs=[de-en]")
            manifest = expand(manifest, named_pairs(pairs))
        for other in corpora:
            if common := sorted(other.manifest.sources & manifest.sources):
                raise ValueError(
                    f"corpus.add: {place} calls a source {common[0]}, as {other.files} does; give it "
                    "another name in its manifest.yaml, or leave one of them out"
                )
        corpora.append(_Fetched(store, manifest, place))
    return corpora


def _pairs(pairs: Sequence[str], corpora: Sequence[_Fetched]) -> tuple[LangPair, ...]:
    """The pairs that a user means, of the languages of all corpora; the first of them says the default target."""
    manifest = corpora[0].manifest
    columns = [(entry, each.codes(entry)) for each in corpora for entry in each.manifest.files]
    codes = sorted({code for _, of_entry in columns for code in of_entry})
    target = manifest.default_target or ("en" if "en" in codes else None)
    if target is not None and target not in codes:
        raise ValueError(f"corpus {manifest.name}: default_target {target} is none of the codes {', '.join(codes)}")
    if list(pairs) != [ALL]:
        return parse_pairs(pairs, codes, target)
    found: dict[LangPair, None] = {}
    for entry, of_entry in columns:
        if entry.split != "train":
            continue
        if entry.pair is not None:
            found[entry.pair] = None
        elif target is not None:
            found.update(dict.fromkeys(LangPair(code, target) for code in of_entry if code != target))
    if all(entry.split != "train" for entry, _ in columns):
        raise ValueError(f"corpus {manifest.name} has no training files; add some, or add it to a corpus by corpus.add")
    if not found:
        raise ValueError(f"corpus {manifest.name}: pairs=[{ALL}] finds no pair; name them, as src-tgt")
    return tuple(found)


def _places(manifests: Sequence[Manifest]) -> dict[str, int]:
    """Which corpus each source is of: 0 for the first, the one to which others are added."""
    return {name: number for number, manifest in enumerate(manifests) for name in manifest.sources}


def _most_rows(table: FetchedTable, pair: LangPair) -> int:
    """At most so many rows of a table have both languages."""
    return min(table.filled.get(code, 0) for code in (pair.src, pair.tgt))


def _has(table: FetchedTable, pair: LangPair) -> bool:
    """Whether a table is of a pair; one to measure by must have texts of both languages."""
    return {pair.src, pair.tgt} <= set(table.codes) and (table.split == "train" or _most_rows(table, pair) > 0)


def _with_held_out(
    config: CorpusConfig,
    store: Store,
    pairs: Iterable[LangPair],
    tables: Sequence[tuple[FetchedTable, Artifact]],
    places: Mapping[str, int],
) -> tuple[list[tuple[FetchedTable, Artifact]], dict[LangPair, Artifact]]:
    """The tables, a training table of every pair without dev or test replaced by its parts, and the parts for each of
    these pairs: of the table with most rows of the pair in the first corpus that has some."""
    missing: dict[int, dict[str, bool]] = {}
    chosen: dict[LangPair, int] = {}
    for pair in pairs:
        both = {number: table for number, (table, _) in enumerate(tables) if _has(table, pair)}
        lacks = {split: not any(table.split == split for table in both.values()) for split in SPLITS[1:]}
        train = {
            number: (-places[table.source], _most_rows(table, pair))
            for number, table in both.items()
            if table.split == "train" and not table.tag and _most_rows(table, pair) > 0
        }
        if any(lacks.values()) and train:
            number = chosen[pair] = max(train, key=train.__getitem__)
            others = missing.get(number, {})
            missing[number] = {split: lack or others.get(split, False) for split, lack in lacks.items()}
    parts = {number: _split(config, store, *tables[number], splits) for number, splits in missing.items()}
    current = [part for number, item in enumerate(tables) for part in parts.get(number, [item])]
    return current, {pair: parts[number][0][1] for pair, number in chosen.items()}


def _split(
    config: CorpusConfig, store: Store, table: FetchedTable, artifact: Artifact, missing: Mapping[str, bool]
) -> list[tuple[FetchedTable, Artifact]]:
    def run(out: Path) -> None:
        from pipeline.corpus.split import split_table

        split_table(table, config.split, missing, out)

    slice_: dict[str, Any] = {"split": asdict(config.split), "missing": dict(missing)}
    label = f"{table.source} {'-'.join(table.codes)}"
    stage = Stage(name=_SPLIT, version=1, config=slice_, inputs={"table": artifact}, run=run, label=label)
    parts = store.get(stage)
    return [(part, parts) for part in read_tables(parts.path)]


def _index(
    config: CorpusConfig, store: Store, tables: Sequence[tuple[FetchedTable, Artifact]], splits: Sequence[str]
) -> Artifact | None:
    """Index of all texts of some splits."""
    rule = config.rules.held_out
    if rule is None:
        return None
    chosen_tables = [(table, artifact) for table, artifact in tables if table.split in splits]

    def run(out: Path) -> None:
        from pipeline.corpus.cleaning.held_out import index_held_out

        index_held_out([(table.path, table.codes) for table, _ in chosen_tables], rule.shingle_words, out)

    inputs = {f"{artifact.key} {table.path.name}": artifact for table, artifact in chosen_tables}
    return store.get(Stage(name="held_out", version=2, config=asdict(rule), inputs=inputs, run=run))
