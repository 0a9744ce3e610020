"""The fields of records, by dotted name, that hold the columns of a table."""

from collections.abc import Collection, Mapping

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, to_bcp47

_SIDES = (("src", "tgt"), ("source", "target"))
_PREFIXES = ("translation.", "")  # in this order, because a field `id` is more often a number than Indonesian
_LISTED, _LISTED_CHARS = 20, 300


def named_fields(
    where: str, entry: FileEntry, renames: Mapping[str, str], available: Collection[str]
) -> dict[str, str]:
    """Return the column by field: from `columns` of the entry, or else from the names of the fields.

    These names are translation.<code> or <code> for the two codes of the pair, src and tgt, or source and target.

    where: file and line, for messages.
    available: dotted names of the fields.
    Raises ValueError if no two names fit.
    """
    if entry.columns:
        return dict(entry.columns)
    pair = entry.pair
    assert pair is not None, "check_entry requires it"
    fields = _by_code(pair, renames, available) or _by_side(pair, available)
    if fields is None:
        raise ValueError(
            f"{where}: no fields of {pair} (there is {listed(available)}); say which they are, as "
            f'columns: {{german: "{pair.src}", english: "{pair.tgt}"}}'
        )
    return fields


def _by_code(pair: LangPair, renames: Mapping[str, str], available: Collection[str]) -> dict[str, str] | None:
    for prefix in _PREFIXES:
        names: dict[str, str] = {}
        for name in available:
            if name.startswith(prefix):
                try:
                    names.setdefault(to_bcp47(name.removeprefix(prefix), renames), name)
                except ValueError:
                    continue  # not a language but another field, such as metadata
        if pair.src in names and pair.tgt in names:
            return {names[pair.src]: pair.src, names[pair.tgt]: pair.tgt}
    return None


def _by_side(pair: LangPair, available: Collection[str]) -> dict[str, str] | None:
    for src, tgt in _SIDES:
        if src in available and tgt in available:
            return {src: pair.src, tgt: pair.tgt}
    return None


def listed(names: Collection[str]) -> str:
    """Return the first few of some names, for a message."""
    few = ", ".join(list(names)[:_LISTED]) or "none"
    return f"{few[:_LISTED_CHARS]} …" if len(names) > _LISTED or len(few) > _LISTED_CHARS else few
