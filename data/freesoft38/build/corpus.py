"""Makes the corpus from fetched files: first the held-out sets, then the training rows."""

import csv
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from .download import HERE
from .output import Writer
from .rows import Row, keep_clean
from .sources import GnomeHelp, LibreOfficeHelp, ManualPages, PackageDescriptions, Source, Wesnoth
from .splits import HELP_DEV, HELP_TEST, MIN_TRAIN, HeldOut, TestSentence, multiway_table, tail_sets, training_rows


class Language(NamedTuple):
    """A line of languages.tsv. test: multiway or tail; descriptions: whether Debian has descriptions, yes or no."""

    code: str
    test: str
    descriptions: str


def all_languages() -> list[Language]:
    """Return the languages of the corpus, those of the multi-way tests in the order of their columns."""
    with (HERE / "languages.tsv").open(encoding="utf-8", newline="") as stream:
        return [Language(**line) for line in csv.DictReader(stream, delimiter="\t")]


def open_sources(
    packages: Mapping[str, Sequence[Path]], indexes: Path | None, languages: Sequence[Language]
) -> dict[str, Source]:
    """Return the readers of the sources by name, in the order in which rows are written."""
    codes = [language.code for language in languages]
    sources: dict[str, Source] = {"lohelp": LibreOfficeHelp(packages.get("lohelp", []))}
    if indexes:
        sources["ddtp"] = PackageDescriptions(indexes)
    sources["man"] = ManualPages(packages.get("man", []), codes)
    sources["wesnoth"] = Wesnoth(packages.get("wesnoth", []), codes)
    sources["gnomehelp"] = GnomeHelp(packages.get("gnomehelp", []), codes)
    return sources


# The readers, in the processes that make_pool() starts.
process_sources: dict[str, Source] = {}


def make_pool(sources: Mapping[str, Source], jobs: int) -> ProcessPoolExecutor:
    """Return processes that have the readers. They inherit them by fork, because the readers are large."""
    fork = multiprocessing.get_context("fork")
    return ProcessPoolExecutor(jobs, mp_context=fork, initializer=process_sources.update, initargs=(sources,))


def read_rows(source: str, code: str) -> list[Row]:
    """Return the clean rows of a source in a language."""
    return list(keep_clean(process_sources[source].rows(code)))


def read_training_rows(held_out: HeldOut, code: str, help_rows: Sequence[Row]) -> list[Row]:
    """Return the training rows of a language, source by source. help_rows: the rows of lohelp, which come first."""
    other_rows = (row for name, source in process_sources.items() if name != "lohelp" for row in source.rows(code))
    return list(training_rows(keep_clean(chain(help_rows, other_rows)), code, held_out))


def write_held_out(
    pool: Executor,
    languages: Sequence[Language],
    help_rows: Mapping[str, Sequence[Row]],
    sentences: Sequence[TestSentence],
    writer: Writer,
) -> tuple[HeldOut, dict[str, str]]:
    """Write development and test sets. Return their texts, and kind and size of the test set by language."""
    held_out, tests = HeldOut(), {}
    core = [language.code for language in languages if language.test == "multiway"]
    for split, buckets in (("dev", HELP_DEV), ("test", HELP_TEST)):
        digests = [sentence.sha256 for sentence in sentences if sentence.split == split]
        table = multiway_table({code: help_rows[code] for code in core}, digests, buckets)
        if core:
            writer.write_multiway(split, core, table)
        for english, *translations in table:
            for code, foreign in zip(core, translations, strict=True):
                held_out.add(foreign, english, code)
                tests[code] = f"multiway {len(table)}"
    tail = [language.code for language in languages if language.test == "tail"]
    for code, gnome_rows in zip(tail, pool.map(partial(read_rows, "gnomehelp"), tail), strict=True):
        dev, test = tail_sets(gnome_rows)
        if not test:
            continue
        for split, rows in (("dev", dev), ("test", test)):
            writer.write_tail(split, code, rows)
            for row in rows:
                held_out.add(row.foreign, row.english, code)
        tests[code] = f"tail {len(test)}"
    return held_out, tests


def write_corpus(
    sources: Mapping[str, Source],
    languages: Sequence[Language],
    sentences: Sequence[TestSentence],
    writer: Writer,
    jobs: int,
    say: Callable[[str], None] = print,
) -> None:
    """Write every file of the corpus, and tell each language's rows. jobs: number of processes."""
    codes = [language.code for language in languages]
    with make_pool(sources, jobs) as pool:
        help_rows = dict(zip(codes, pool.map(partial(read_rows, "lohelp"), codes), strict=True))
        held_out, tests = write_held_out(pool, languages, help_rows, sentences, writer)
        training = pool.map(partial(read_training_rows, held_out), codes, help_rows.values())
        for code, rows in zip(codes, training, strict=True):
            if code not in tests or len(rows) < MIN_TRAIN:
                say(f"{code}: left out, {len(rows)} training rows and {tests.get(code, 'no test set')}")
                continue
            writer.write_train(code, rows, tests[code])
            say("\t".join(writer.counts[-1]))
    writer.finish()
