"""Templates: entries of a manifest that stand for one entry for each requested pair.

A template holds placeholders in its paths, archive, data set, configuration, part, or in its columns:
`{src}` and `{tgt}` are the two languages, `{pair}` is src-tgt; `{first}` and `{second}` are the same two in
alphabetical order, `{sorted}` is first-second. The codes are those of the corpus: from the manifest's `codes`, or else
BCP-47, or a scheme that the placeholder names: `{sorted:iso639-3}`, `{src:flores}`.

The two directions of a pair have the same rows, so they make one entry. Its `{tgt}` is the manifest's default target if
that is one of the two, or else the second in the alphabet.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.corpus.fetched import DOCUMENT
from pipeline.corpus.languages import LangPair, MissingPairError, normalize_code, split_pair
from pipeline.corpus.manifest import PLACEHOLDER, FileEntry, Manifest
from pipeline.corpus.sources.codes import is_language, own_code

_SCHEME = "bcp47"
_SORTED = ("sorted", "first", "second")


def has_templates(manifest: Manifest) -> bool:
    return any(entry.template for entry in manifest.files)


def expand(manifest: Manifest, pairs: Sequence[LangPair]) -> Manifest:
    """Return the manifest with an entry for each pair in place of each template.

    Entries of one table, such as a multi-way test set, become one entry with the columns of all.
    Raises ValueError for an unknown placeholder, a pair that a template cannot name, and an empty list of pairs.
    """
    if not has_templates(manifest):
        return manifest
    if not pairs:
        raise ValueError(f"corpus {manifest.name} has an entry for each pair; name pairs, as LANG_PAIRS='de-en fr-en'")
    canonical = list(dict.fromkeys(_canonical(pair, manifest) for pair in pairs))
    entries: list[FileEntry] = []
    for entry in manifest.files:
        if entry.template:
            entries += _merge(_fill(entry, pair, manifest) for pair in canonical)
        else:
            entries.append(entry)
    return replace(manifest, files=tuple(entries))


def named_pairs(pairs: str | Sequence[str]) -> tuple[LangPair, ...]:
    """Return the pairs of a corpus with unknown languages, from src-tgt or src:tgt, in the order given.

    Raises ValueError if a text is ambiguous, MissingPairError if it names no pair of registered languages.
    """
    texts = re.split(r"[\s,]+", pairs.strip()) if isinstance(pairs, str) else list(pairs)
    return tuple(_named_pair(text) for text in texts if text)


def _named_pair(text: str) -> LangPair:
    readings = set()
    for sides in split_pair(text.strip()):
        try:
            src, tgt = (normalize_code(side) for side in sides)
        except ValueError:
            continue  # the text was cut in the wrong place; a text without any reading is reported below
        if is_language(src) and is_language(tgt) and src != tgt:
            readings.add(LangPair(src, tgt))
    if not readings:
        raise MissingPairError(f"pair {text!r} names no two languages; write it as de-en")
    if len(readings) > 1:
        listed = " or ".join(sorted(f"{pair.src}:{pair.tgt}" for pair in readings))
        raise ValueError(f"pair {text!r} may be {listed}; write the one you mean")
    return readings.pop()


def _canonical(pair: LangPair, manifest: Manifest) -> LangPair:
    """Return the direction of a pair by which its entry is known."""
    if manifest.default_target in (pair.src, pair.tgt):
        swap = pair.src == manifest.default_target
    else:
        swap = pair.tgt < pair.src
    return LangPair(pair.tgt, pair.src) if swap else pair


@dataclass(frozen=True)
class _Filling:
    """The two languages of a pair, by any placeholder of a template. renames: the manifest's `codes`."""

    pair: LangPair
    renames: Mapping[str, str]

    def name(self, match: re.Match[str]) -> str:
        """Return the codes of the corpus for a placeholder."""
        word, scheme = match[1], match[2] or _SCHEME
        own = [own_code(code, scheme, self.renames) for code in self._order(word, scheme)]
        if word in ("pair", "sorted"):
            return "-".join(own)
        return own[0 if word in ("src", "first") else 1]

    def code(self, text: str) -> str:
        """Return the BCP-47 code, or `document`, for the value of a column."""
        match = PLACEHOLDER.fullmatch(text)
        if match is None:
            return text
        word, scheme = match[1], match[2] or _SCHEME
        if word in ("pair", "sorted"):
            raise ValueError(f"{text} is two languages; a column is {{src}}, {{tgt}}, {{first}} or {{second}}")
        return self._order(word, scheme)[0 if word in ("src", "first") else 1]

    def ordered_pair(self, texts: Iterable[str]) -> LangPair:
        """Return the pair in the order of the placeholders of a template."""
        for text in texts:
            for match in PLACEHOLDER.finditer(text):
                word, scheme = match[1], match[2] or _SCHEME
                if word in _SORTED:
                    return LangPair(*self._order(word, scheme))
        return self.pair

    def _order(self, word: str, scheme: str) -> list[str]:
        codes = [self.pair.src, self.pair.tgt]
        if word in _SORTED:
            codes.sort(key=lambda code: own_code(code, scheme, self.renames))
        return codes


def _fill(entry: FileEntry, pair: LangPair, manifest: Manifest) -> FileEntry:
    filling = _Filling(pair, manifest.codes)

    def filled(text: str) -> str:
        return PLACEHOLDER.sub(filling.name, text)

    columns = {filled(field): filling.code(code) for field, code in entry.columns.items()}
    codes = {code for code in columns.values() if code != DOCUMENT}
    if codes and not {pair.src, pair.tgt} <= codes:
        only = ", ".join(sorted(code for code in entry.columns.values() if code != DOCUMENT and "{" not in code))
        raise MissingPairError(
            f"pair {pair}: corpus {manifest.name} has only pairs with {only}; choose one of them, or another corpus"
        )
    return replace(
        entry,
        paths=tuple(filled(path) for path in entry.paths),
        archive=filled(entry.archive),
        dataset=filled(entry.dataset),
        config=filled(entry.config),
        part=filled(entry.part),
        columns=columns,
        pair=entry.pair or (None if columns else filling.ordered_pair(_texts(entry))),
    )


def _merge(entries: Iterable[FileEntry]) -> list[FileEntry]:
    """Return the entries, where those that differ in their columns alone are merged into the first of them."""
    merged: list[FileEntry] = []
    for entry in entries:
        for index, earlier in enumerate(merged):
            if replace(entry, columns=earlier.columns) == earlier:
                merged[index] = replace(earlier, columns={**earlier.columns, **entry.columns})
                break
        else:
            merged.append(entry)
    return merged


def _texts(entry: FileEntry) -> list[str]:
    names = [*entry.paths, entry.archive, entry.dataset, entry.config, entry.part]
    return [*names, *entry.columns, *entry.columns.values()]
