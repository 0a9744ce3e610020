"""From a corpus to the cleaned rows of its pairs: fetch -> split -> held_out -> clean."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pipeline.config import ROOT
from pipeline.corpus.config import CorpusConfig
from pipeline.corpus.fetched import DOCUMENT, read_tables
from pipeline.corpus.languages import LangPair, parse_pairs
from pipeline.corpus.manifest import NOTICE, SPLITS, FileEntry, Manifest, read_manifest
from pipeline.corpus.sources.templates import expand, has_templates, named_pairs
from pipeline.dag import stages
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import Corpus, Table, has_pair, most_rows, source_order
from pipeline.dag.store import Store
from pipeline.tasks import DataConfig, side_by_side

ALL = "all"  # stands for every pair that the training files name


def prepare_corpus(config: CorpusConfig, pairs: Sequence[str], store: Store, data: DataConfig) -> Corpus:
    """Fetch what the pairs need, and every dev and test set; split off the missing ones; index what is held out.

    pairs: as the user wrote them, or ALL.
    """
    sources = open_sources(config, pairs, store)
    parsed = _pairs(pairs, sources)
    needed = [
        partial(source.tables, entry)
        for source in sources
        for entry in source.manifest.files
        if entry.split != "train" or any({p.src, p.tgt} <= set(source.codes(entry)) for p in parsed)
    ]
    tables = [table for entry_tables in side_by_side(needed, at_once=data.stages_at_once) for table in entry_tables]
    manifest, *added = [source.manifest for source in sources]
    tables, split_off = _with_held_out(config, store, parsed, tables, source_order((manifest, *added)))
    notices = [source.files / NOTICE for source in sources]
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
    """Clean the rows of one pair."""
    return store.get(stages.clean(corpus, pair, config, data))


class Source:
    """One corpus, whose entries are fetched when they are needed. files: its directory."""

    def __init__(self, store: Store, manifest: Manifest, files: Path) -> None:
        self.store, self.manifest, self.files = store, manifest, files
        self._tables: dict[int, list[Table]] = {}  # by identity, because an entry has no hash

    def codes(self, entry: FileEntry) -> Sequence[str]:
        """Return the languages of an entry, without reading it where its description says them."""
        if entry.pair is not None:
            return (entry.pair.src, entry.pair.tgt)
        if entry.columns:
            return [code for code in entry.columns.values() if code != DOCUMENT]
        return [code for table, _ in self.tables(entry) for code in table.codes]

    def tables(self, entry: FileEntry) -> list[Table]:
        """Return the tables of an entry. Its files are hashed at the first call alone."""
        if id(entry) not in self._tables:
            cache = self.store.root / "downloads"
            artifact = self.store.get(stages.fetch(self.manifest, entry, files=self.files, cache=cache))
            self._tables[id(entry)] = [(table, artifact) for table in read_tables(artifact.path)]
        return self._tables[id(entry)]


def open_sources(config: CorpusConfig, pairs: Sequence[str], store: Store) -> list[Source]:
    """Return the corpus and those that are added, for some pairs. Raises ValueError as `read_manifests`."""
    return [Source(store, for_pairs(manifest, pairs), files) for manifest, files in read_manifests(config)]


def read_manifests(config: CorpusConfig) -> list[tuple[Manifest, Path]]:
    """Return the manifest and the directory of the corpus and of those that are added.

    Raises ValueError where two of them call a source by one name.
    """
    corpora: list[tuple[Manifest, Path]] = []
    for number, directory in enumerate((config.path, *config.add)):
        path = ROOT / Path(directory).expanduser()
        manifest_path = ROOT / config.manifest if config.manifest and not number else None
        manifest = read_manifest(path, manifest_path, setting="corpus.add" if number else "corpus.path")
        for earlier, files in corpora:
            if common := sorted(earlier.sources & manifest.sources):
                raise ValueError(
                    f"corpus.add: {path} calls a source {common[0]}, as {files} does; give it "
                    "another name in its manifest.yaml, or leave one of them out"
                )
        corpora.append((manifest, path))
    return corpora


def for_pairs(manifest: Manifest, pairs: Sequence[str]) -> Manifest:
    """Return a manifest with an entry for each pair in place of each entry with placeholders."""
    if not has_templates(manifest):
        return manifest
    if list(pairs) == [ALL]:
        raise ValueError(f"corpus {manifest.name} has an entry for each pair: name pairs, as LANG_PAIRS=de-en")
    return expand(manifest, named_pairs(pairs))


def _pairs(pairs: Sequence[str], sources: Sequence[Source]) -> tuple[LangPair, ...]:
    """Return the pairs that a user means, in languages of all corpora; the first corpus says the default target."""
    manifest = sources[0].manifest
    entries = [(entry, source.codes(entry)) for source in sources for entry in source.manifest.files]
    codes = sorted({code for _, entry_codes in entries for code in entry_codes})
    target = manifest.default_target or ("en" if "en" in codes else None)
    if target is not None and target not in codes:
        raise ValueError(f"corpus {manifest.name}: default_target {target} is none of the codes {', '.join(codes)}")
    if list(pairs) != [ALL]:
        if wrong := next((text for text in pairs if text.lower() == ALL), None):
            typed = " ".join(pairs)
            raise ValueError(
                f'LANG_PAIRS="{typed}": {wrong} is every pair; write it alone and in small letters, LANG_PAIRS={ALL}'
            )
        return parse_pairs(pairs, codes, target)
    named: dict[LangPair, None] = {}
    for entry, entry_codes in entries:
        if entry.split != "train":
            continue
        if entry.pair is not None:
            named[entry.pair] = None
        elif target is not None:
            named.update(dict.fromkeys(LangPair(code, target) for code in entry_codes if code != target))
    if all(entry.split != "train" for entry, _ in entries):
        raise ValueError(f"corpus {manifest.name} has no training files; add some, or add it to a corpus by corpus.add")
    if not named:
        raise ValueError(f"corpus {manifest.name}: LANG_PAIRS={ALL} finds no pair; name them, as src-tgt")
    return tuple(named)


def _with_held_out(
    config: CorpusConfig,
    store: Store,
    pairs: Iterable[LangPair],
    tables: Sequence[Table],
    order: Mapping[str, int],
) -> tuple[list[Table], dict[LangPair, Artifact]]:
    """Split a training table of every pair that lacks dev or test.

    That table is the one with most rows of the pair in the first corpus that has some.
    order: number of the corpus of each source.
    Returns the tables with the parts in place of what was split, and the parts of each such pair.
    """
    missing: dict[int, dict[str, bool]] = {}
    table_of: dict[LangPair, int] = {}
    for pair in pairs:
        candidates = {number: table for number, (table, _) in enumerate(tables) if has_pair(table, pair)}
        lacks = {split: not any(table.split == split for table in candidates.values()) for split in SPLITS[1:]}
        train = {
            number: (-order[table.source], most_rows(table, pair))
            for number, table in candidates.items()
            if table.split == "train" and not table.tag and most_rows(table, pair) > 0
        }
        if any(lacks.values()) and train:
            number = table_of[pair] = max(train, key=train.__getitem__)
            earlier = missing.get(number, {})
            missing[number] = {split: lack or earlier.get(split, False) for split, lack in lacks.items()}
    parts = {number: _split(config, store, tables[number], splits) for number, splits in missing.items()}
    current = [part for number, table in enumerate(tables) for part in parts.get(number, [table])]
    return current, {pair: parts[number][0][1] for pair, number in table_of.items()}


def _split(config: CorpusConfig, store: Store, table: Table, missing: Mapping[str, bool]) -> list[Table]:
    artifact = store.get(stages.split(table, config.split, missing))
    return [(part, artifact) for part in read_tables(artifact.path)]


def _index(config: CorpusConfig, store: Store, tables: Sequence[Table], splits: Sequence[str]) -> Artifact | None:
    """Index all texts of some splits; None where the configuration has no rule for held-out texts."""
    rule = config.rules.held_out
    if rule is None:
        return None
    return store.get(stages.held_out([table for table in tables if table[0].split in splits], rule))
