"""Which fields of a record, by dotted name, hold which columns."""

from collections.abc import Collection, Mapping
from pathlib import Path

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, to_bcp47

_SIDES = (("src", "tgt"), ("source", "target"))
_PREFIXES = ("translation.", "")  # in this order: `id` at the top is a number more often than Indonesian


def named_fields(
    path: Path, entry: FileEntry, renames: Mapping[str, str], available: Collection[str]
) -> dict[str, str]:
    """Field -> column: as `columns` says, or else the codes of the pair, translation.<code>, src and tgt, whichever
    both are available. Raises ValueError if none are.
    """
    if entry.columns:
        return dict(entry.columns)
    pair = entry.pair
    assert pair is not None, "held by check_entry"
    found = _by_code(pair, renames, available) or _by_side(pair, available)
    if found is None:
        raise ValueError(
            f"{path}: line 1: no fields of {pair} (it has {', '.join(available) or 'none'}); say which they are, as "
            f'columns: {{german: "{pair.src}", english: "{pair.tgt}"}}'
        )
    return found


def _by_code(pair: LangPair, renames: Mapping[str, str], available: Collection[str]) -> dict[str, str] | None:
    for prefix in _PREFIXES:
        names: dict[str, str] = {}
        for name in available:
            if name.startswith(prefix):
                try:
                    names.setdefault(to_bcp47(name.removeprefix(prefix), renames), name)
                except ValueError:
                    continue  # a field of another kind, as a row of metadata
        if pair.src in names and pair.tgt in names:
            return {names[pair.src]: pair.src, names[pair.tgt]: pair.tgt}
    return None


def _by_side(pair: LangPair, available: Collection[str]) -> dict[str, str] | None:
    for src, tgt in _SIDES:
        if src in available and tgt in available:
            return {src: pair.src, tgt: pair.tgt}
    return None
