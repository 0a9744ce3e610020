"""Which fields of a record, by dotted name, hold which columns."""

from collections.abc import Collection, Mapping

from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import FileEntry, to_bcp47

_SIDES = (("src", "tgt"), ("source", "target"))
_PREFIXES = ("translation.", "")  # in this order: `id` at the top is a number more often than Indonesian
_LISTED, _LISTED_CHARS = 20, 300


def named_fields(
    where: str, entry: FileEntry, renames: Mapping[str, str], available: Collection[str]
) -> dict[str, str]:
    """Field -> column: as `columns` says, or else the codes of the pair, translation.<code>, src and tgt, whichever
    both are available. where: file and line. Raises ValueError if none are.
    """
    if entry.columns:
        return dict(entry.columns)
    pair = entry.pair
    assert pair is not None, "held by check_entry"
    found = _by_code(pair, renames, available) or _by_side(pair, available)
    if found is None:
        raise ValueError(
            f"{where}: no fields of {pair} (there is {listed(available)}); say which they are, as "
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


def listed(names: Collection[str]) -> str:
    """The first few of some names, for a message."""
    few = ", ".join(list(names)[:_LISTED]) or "none"
    return f"{few[:_LISTED_CHARS]} …" if len(names) > _LISTED or len(few) > _LISTED_CHARS else few
