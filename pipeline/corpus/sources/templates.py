"""Entries of a manifest that stand for many: one for every pair that is asked for.

A template holds placeholders in its paths, archive, data set, configuration, part, or in its columns:
`{src}` and `{tgt}` are the two languages, `{pair}` is src-tgt; `{first}` and `{second}` are the same two in
alphabetical order, `{sorted}` is first-second. The codes are the corpus' own: what the manifest's `codes` call them, or
BCP-47, or by a scheme that the placeholder names: `{sorted:iso639-3}`, `{src:flores}`.

Rows are the same whichever way they are translated, so both directions of a pair make one entry: `{tgt}` is the
manifest's default target where it takes part, or else the second in the alphabet.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.corpus.fetched import DOCUMENT
from pipeline.corpus.languages import LangPair, normalize_code, split_pair
from pipeline.corpus.manifest import PLACEHOLDER, FileEntry, Manifest
from pipeline.corpus.sources.codes import is_language, own_code

_SCHEME = "bcp47"
_SORTED = ("sorted", "first", "second")


def has_templates(manifest: Manifest) -> bool:
    return any(entry.template for entry in manifest.files)


def expand(manifest: Manifest, pairs: Sequence[LangPair]) -> Manifest:
    """Manifest of the same corpus whose templates are replaced by an entry for each pair.

    Entries that name one table, as of a multi-way test set, become one that has the columns of all.
    Raises ValueError for a placeholder that is not known, a pair that a template cannot name, and no pair at all.
    """
    if not has_templates(manifest):
        return manifest
    if not pairs:
        raise ValueError(f"corpus {manifest.name} has an entry for each pair; name pairs, as pairs='de-en fr-en'")
    canonical = list(dict.fromkeys(_canonical(pair, manifest) for pair in pairs))
    entries: list[FileEntry] = []
    for entry in manifest.files:
        if entry.template:
            entries += _merge(_fill(entry, pair, manifest) for pair in canonical)
        else:
            entries.append(entry)
    return replace(manifest, files=tuple(entries))


def named_pairs(pairs: str | Sequence[str]) -> tuple[LangPair, ...]:
    """Pairs of a corpus that does not say which languages it has, as src-tgt or src:tgt, in the order given.

    Raises ValueError if a text names no pair of registered languages, or may name two.
    """
    texts = re.split(r"[\s,]+", pairs.strip()) if isinstance(pairs, str) else list(pairs)
    return tuple(_named_pair(text) for text in texts if text)


def _named_pair(text: str) -> LangPair:
    readings = set()
    for sides in split_pair(text.strip()):
        try:
            src, tgt = (normalize_code(side) for side in sides)
        except ValueError:
            continue  # a cut in the wrong place; a text without any reading is reported below
        if is_language(src) and is_language(tgt) and src != tgt:
            readings.add(LangPair(src, tgt))
    if len(readings) != 1:
        listed = " or ".join(sorted(f"{pair.src}:{pair.tgt}" for pair in readings))
        what = f"may be {listed}; write the one you mean" if readings else "names no two languages; write it as de-en"
        raise ValueError(f"pair {text!r} {what}")
    return readings.pop()


def _canonical(pair: LangPair, manifest: Manifest) -> LangPair:
    if manifest.default_target in (pair.src, pair.tgt):
        swap = pair.src == manifest.default_target
    else:
        swap = pair.tgt < pair.src
    return LangPair(pair.tgt, pair.src) if swap else pair


@dataclass(frozen=True)
class _Filling:
    """The two languages of a pair, by any name that a template may ask for."""

    pair: LangPair
    renames: Mapping[str, str]

    def name(self, match: re.Match[str]) -> str:
        """The corpus' own code or codes for a placeholder."""
        what, scheme = match[1], match[2] or _SCHEME
        own = [own_code(code, scheme, self.renames) for code in self._order(what, scheme)]
        if what in ("pair", "sorted"):
            return "-".join(own)
        return own[0 if what in ("src", "first") else 1]

    def code(self, text: str) -> str:
        """BCP-47 code, or `document`, of the value of a column."""
        match = PLACEHOLDER.fullmatch(text)
        if match is None:
            return text
        what, scheme = match[1], match[2] or _SCHEME
        if what in ("pair", "sorted"):
            raise ValueError(f"{text} is two languages; a column is {{src}}, {{tgt}}, {{first}} or {{second}}")
        return self._order(what, scheme)[0 if what in ("src", "first") else 1]

    def ordered_pair(self, texts: Iterable[str]) -> LangPair:
        """Pair in the order in which the names of the template have it."""
        for text in texts:
            for match in PLACEHOLDER.finditer(text):
                what, scheme = match[1], match[2] or _SCHEME
                if what in _SORTED:
                    return LangPair(*self._order(what, scheme))
        return self.pair

    def _order(self, what: str, scheme: str) -> list[str]:
        codes = [self.pair.src, self.pair.tgt]
        if what in _SORTED:
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
        raise ValueError(
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
    """Entries without those that differ from an earlier one in their columns alone, whose columns it takes over."""
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
