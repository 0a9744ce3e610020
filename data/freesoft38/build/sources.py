"""The five sources: which files of which packages they are, and how their rows are aligned."""

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from . import catalogues, descriptions, help_pages, mallard, man
from .deb import read_files
from .rows import Row
from .text import align_sentences, clean

# The order in which rows of a language are written; of duplicates the first is kept.
ORDER = ("lohelp", "ddtp", "man", "wesnoth", "gnomehelp")
HELP_FILE = re.compile(r"usr/share/libreoffice/help/(?P<language>[^/]+)/(?P<page>text/.*\.html)")
GNOME_FILE = re.compile(r"usr/share/help/(?P<language>[^/]+)/(?P<page>.*\.(?:page|xml))")
MAN_FILE = re.compile(r"usr/share/man/(?:(?P<language>[^/]+)/)?(?P<page>man\d/[^/]*\.gz)")
CATALOGUE_FILE = re.compile(r"usr/share/games/wesnoth/[^/]+/locale/(?P<language>[^/]+)/LC_MESSAGES/(?P<page>[^/]*)\.mo")
PLACEHOLDER = re.compile(r"\$\w|%[sd]")
SUITES = ("bookworm", "trixie", "sid", "bullseye")


class Files:
    """The files of a pattern in some languages, kept in memory: every package is read once."""

    def __init__(self, packages: Iterable[Path], pattern: re.Pattern[str], languages: Iterable[str | None]) -> None:
        self.by_language: dict[str | None, list[tuple[str, str, bytes]]] = {language: [] for language in languages}
        for package in packages:
            for name, content in read_files(package, lambda name: self.belongs(pattern, name)):
                match = pattern.fullmatch(name)
                assert match is not None  # belongs() saw it
                self.by_language[match["language"]].append((package.name.split("_")[0], match["page"], content))

    def belongs(self, pattern: re.Pattern[str], name: str) -> bool:
        """Say whether a name is of the pattern and of one of the languages."""
        match = pattern.fullmatch(name)
        return match is not None and match["language"] in self.by_language

    def pages(self, language: str | None) -> Iterator[tuple[str, str, bytes]]:
        """Yield package, page and bytes in a language, packages as they were given, pages of a package by name."""
        packages = list(dict.fromkeys(package for package, _, _ in self.by_language[language]))
        yield from sorted(self.by_language[language], key=lambda file: (packages.index(file[0]), file[1]))


class Source(Protocol):
    """A source of the corpus."""

    def rows(self, language: str) -> Iterator[Row]:
        """Yield the rows of a language."""
        ...


class LibreOfficeHelp:
    """Rows of LibreOffice's help: blocks of the same page and id."""

    def __init__(self, packages: Sequence[Path]) -> None:
        self.packages = {package.name.split("_")[0].removeprefix("libreoffice-help-"): package for package in packages}
        self.english = {page: help_pages.page_blocks(content) for page, content in self.pages("en-US")}

    def pages(self, code: str) -> Iterator[tuple[str, bytes]]:
        """Yield the pages of the package of a language; the files of a directory come before its directories."""
        package = self.packages.get(code.lower())
        files = Files([package] if package else [], HELP_FILE, [code])
        yield from sorted(
            ((page, content) for _, page, content in files.pages(code)), key=lambda page: page_order(page[0])
        )

    def rows(self, language: str) -> Iterator[Row]:
        """Yield the rows of a language."""
        for page, content in self.pages(language.replace("_", "-")):
            document = f"lo:{page}"
            if page not in self.english:
                continue
            blocks = help_pages.page_blocks(content)
            for identity, english in self.english[page].items():
                if identity in blocks:
                    yield Row(blocks[identity], english, "lohelp", document)


def page_order(page: str) -> list[tuple[bool, str]]:
    """Return a sorting key by which the files of a directory come before its directories."""
    *directories, name = page.split("/")
    return [*((True, directory) for directory in directories), (False, name)]


class GnomeHelp:
    """Rows of GNOME's help: blocks of the same page in document order, where their numbers agree."""

    def __init__(self, packages: Sequence[Path], languages: Iterable[str]) -> None:
        self.files = Files(packages, GNOME_FILE, ["C", *languages])
        self.english = {page: mallard.page_blocks(content) for _, page, content in self.files.pages("C")}

    def rows(self, language: str) -> Iterator[Row]:
        """Yield the rows of a language."""
        for _, page, content in self.files.pages(language):
            document = f"help:{page}"
            blocks, english = mallard.page_blocks(content), self.english.get(page, [])
            if len(blocks) == len(english):
                yield from (Row(*texts, "gnomehelp", document) for texts in zip(blocks, english, strict=True))


class ManualPages:
    """Rows of manual pages: sections in order, paragraphs where their numbers agree, sentences where theirs do."""

    def __init__(self, packages: Sequence[Path], languages: Iterable[str]) -> None:
        self.files = Files(packages, MAN_FILE, [None, *languages])
        self.english = {page: manual_sections(content) for _, page, content in self.files.pages(None)}

    def rows(self, language: str) -> Iterator[Row]:
        """Yield the rows of a language."""
        for _, page, content in self.files.pages(language):
            sections = manual_sections(content), self.english.get(page, [])
            for foreign_section, english_section in zip(*sections, strict=False):  # translators add a section
                if len(foreign_section) != len(english_section):
                    continue
                for foreign_block, english_block in zip(foreign_section, english_section, strict=True):
                    for foreign, english in align_sentences(foreign_block, english_block):
                        yield Row(foreign, english, "man", f"man:{page}")


def manual_sections(content: bytes) -> list[list[str]]:
    """Return the sections of a compressed manual page."""
    return man.page_sections(gzip.decompress(content).decode("utf-8", errors="replace"))


class Wesnoth:
    """Rows of the game Battle for Wesnoth: messages and their translations."""

    def __init__(self, packages: Sequence[Path], languages: Iterable[str]) -> None:
        self.files = Files(packages, CATALOGUE_FILE, languages)

    def rows(self, language: str) -> Iterator[Row]:
        """Yield the rows of a language, paragraph by paragraph, but those that the game fills in."""
        for package, page, content in self.files.pages(language):
            document = f"mo:{package}/{page.removesuffix('.mo')}"
            for message, translation in catalogues.read_catalogue(content):
                for foreign, english in catalogues.align(translation, message):
                    if not PLACEHOLDER.search(english + foreign):
                        yield Row(clean(foreign), clean(english), "wesnoth", document)


class PackageDescriptions:
    """Rows of Debian's package descriptions: paragraphs, and sentences where their numbers agree."""

    def __init__(self, indexes: Path) -> None:
        self.indexes = indexes
        self.english: dict[str, list[str]] = {}
        for suite in SUITES:
            for _, checksum, description in self.read(suite, "en"):
                self.english.setdefault(checksum, descriptions.paragraphs(description))

    def read(self, suite: str, language: str) -> Iterator[tuple[str, str, list[str]]]:
        """Yield the descriptions of a suite in a language; none if the suite has no index of it."""
        path = self.indexes / f"{suite}_{language}"
        if path.exists():
            with path.open(encoding="utf-8") as lines:
                yield from descriptions.read_index(lines, language)

    def rows(self, language: str) -> Iterator[Row]:
        """Yield the rows of a language; a description is taken from the first suite that has it."""
        checksums = set()
        for suite in SUITES:
            for package, checksum, description in self.read(suite, language):
                english = self.english.get(checksum)
                blocks = descriptions.paragraphs(description)
                if checksum in checksums or english is None or len(blocks) != len(english):
                    continue
                checksums.add(checksum)
                for foreign_block, english_block in zip(blocks, english, strict=True):
                    for foreign, text in align_sentences(foreign_block, english_block):
                        yield Row(clean(foreign), clean(text), "ddtp", f"ddtp:{package}")
