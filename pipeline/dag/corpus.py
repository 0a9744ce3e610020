"""A corpus as far as a run needs it: the tables of its pairs, and what may not be trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.corpus.fetched import FetchedTable
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import SPLITS, Manifest, is_url
from pipeline.dag.artifact import Artifact

Table = tuple[FetchedTable, Artifact]  # a table and the artifact that holds it

SPLIT = "split"  # name of the stage that cuts dev and test off a training table

# Licences that allow a report to show sentences. Text of other licences is not shown, nor is text that was fetched and
# states none: Debian's package descriptions in freesoft38, for example, may be trained on but not passed on.
SHOWABLE = (
    *("MPL-2.0", "CC-BY-4.0", "CC-BY-SA-3.0", "CC-BY-SA-4.0", "CC0-1.0"),
    *("GPL-2.0-or-later", "GPL-3.0-or-later", "Apache-2.0", "MIT"),
)


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus, and the corpora that are added to it, for some pairs.

    notice: the text that the licences ask to pass on.
    split_off: the parts of a training table, for each pair that lacks dev or test.
    held_out: index of dev and test texts, which no training row may contain.
    test_texts: index of the test texts, which no dev row may contain.
    """

    manifest: Manifest
    added: tuple[Manifest, ...]
    notice: str
    pairs: tuple[LangPair, ...]
    tables: tuple[Table, ...]
    split_off: Mapping[LangPair, Artifact]
    held_out: Artifact | None
    test_texts: Artifact | None

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        """The manifest of the corpus, and those of the corpora that are added to it."""
        return (self.manifest, *self.added)

    def tables_of(self, pair: LangPair, split: str | None = None) -> list[Table]:
        """Return the tables with both languages of a pair, of one split or of all.

        Dev and test are those of the first corpus that has them, else what is split off for the pair. So neither an
        added corpus nor another pair changes what is measured.
        """
        tables = [table for table in self.tables if has_pair(table[0], pair)]
        by_split = {"train": [table for table in tables if table[0].split == "train"]}
        order = source_order(self.manifests)
        for name in SPLITS[1:]:
            of_split = [table for table in tables if table[0].split == name]
            fetched = [table for table in of_split if table[1].stage != SPLIT]
            first = min((order[table.source] for table, _ in fetched), default=0)
            split_off = [table for table in of_split if table[1] == self.split_off.get(pair)]
            by_split[name] = [table for table in fetched if order[table[0].source] == first] or split_off
        return [table for table in tables if split in (None, table[0].split) and table in by_split[table[0].split]]

    def may_show(self, pair: LangPair, split: str) -> bool:
        """Return whether a report may show the text of a split of a pair."""
        return all(may_show(self.manifests, table.about()) for table, _ in self.tables_of(pair, split))

    def sources_of(self, pair: LangPair) -> list[tuple[str, int]]:
        """Return the name of each training table of a pair, and the most rows that it can have of the pair."""
        tables = [table for table, _ in self.tables_of(pair, "train")]
        return [(table.source, most_rows(table, pair)) for table in tables]


def may_show(manifests: Sequence[Manifest], source: Mapping[str, Any]) -> bool:
    """Return whether a report may show text of a source: its licence allows it, or it is the user's own.

    A source is the user's own if it states no licence and all its files are on this machine.

    manifests: those that may have the source.
    source: its `name` and its `licence`.
    """
    if source["licence"]:
        return source["licence"] in SHOWABLE
    entries = [entry for m in manifests for entry in m.files if (entry.source or m.name) == source["name"]]
    fetched = [entry for entry in entries if entry.dataset or any(map(is_url, (*entry.paths, entry.archive)))]
    return bool(entries) and not fetched


def source_order(manifests: Sequence[Manifest]) -> dict[str, int]:
    """Return the number of the corpus that each source belongs to; 0 is the one to which others are added."""
    return {name: number for number, manifest in enumerate(manifests) for name in manifest.sources}


def most_rows(table: FetchedTable, pair: LangPair) -> int:
    """Return an upper bound of the rows of a table that have texts in both languages."""
    return min(table.filled.get(code, 0) for code in (pair.src, pair.tgt))


def has_pair(table: FetchedTable, pair: LangPair) -> bool:
    """Return whether a table has both languages of a pair; a dev or test table needs texts in both, too."""
    return {pair.src, pair.tgt} <= set(table.codes) and (table.split == "train" or most_rows(table, pair) > 0)


def train_rows(cleaned: Mapping[LangPair, Artifact]) -> dict[LangPair, int]:
    """Return the number of training rows of each pair after cleaning."""
    return {pair: int(funnel(artifact.path)["train"]["kept"]) for pair, artifact in cleaned.items()}


def num_test_lines(cleaned: Mapping[LangPair, Artifact]) -> dict[LangPair, int]:
    """Return the number of lines of the test sets of each pair after cleaning."""
    return {pair: int(funnel(artifact.path)["test"]["kept"]) for pair, artifact in cleaned.items()}
