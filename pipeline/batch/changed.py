"""Training rows that take the place of plain ones in a window, and their counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pipeline.batch.assembly import Sentences

Ints = npt.NDArray[np.int64]
Tokens = npt.NDArray[Any]

UNCHANGED, CHANGED, TOO_LONG = range(3)  # outcomes; a row to which its kind does not apply is unchanged
Counts = dict[str, dict[str, int]]  # rows that were drawn, changed and too long, by kind


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangedRows:
    """The rows of a window that were drawn for a change, K of them. In a step row k has the index -1 - k.

    kinds: names of all kinds.
    kind: number of the kind of each row, [K].
    outcome: UNCHANGED, CHANGED or TOO_LONG, [K].
    plain: names of the rows whose place it takes, (pair, index): two for merged rows, else one.
    tokens: source and target of each row; None where it keeps its plain form.
    """

    kinds: Sequence[str]
    kind: Ints
    outcome: Ints
    plain: Sequence[Ints]
    tokens: Sequence[tuple[Tokens, Tokens] | None]

    def over(self, data: "Sequence[Sentences]") -> "list[Sentences]":
        """Return the sentences of each pair, with these rows among them."""
        return [_Overlaid(sentences, self) for sentences in data]

    def plain_names(self, names: Ints) -> Ints:
        """Return the names of plain rows for names of which some are of changed ones, [n, 2]."""
        parts = [self.plain[-1 - index] if index < 0 else np.array([[pair, index]]) for pair, index in names.tolist()]
        return np.concatenate([np.zeros((0, 2), dtype=np.int64), *parts])

    def count(self, names: Ints) -> Counts:
        """Count the rows behind some names by kind and outcome. Two rows that were merged count as two."""
        numbers = -1 - names[names[:, 1] < 0, 1]
        rows = np.array([len(self.plain[number]) for number in numbers.tolist()], dtype=np.int64)
        counts: Counts = {}
        for index, kind in enumerate(self.kinds):
            of_kind = self.kind[numbers] == index
            outcome = self.outcome[numbers]
            counts[kind] = {
                "drawn": int(rows[of_kind].sum()),
                "changed": int(rows[of_kind & (outcome == CHANGED)].sum()),
                "too_long": int(rows[of_kind & (outcome == TOO_LONG)].sum()),
            }
        return counts


class _Overlaid:
    """The sentences of a pair, with the changed rows at negative indices."""

    def __init__(self, sentences: "Sentences", rows: ChangedRows) -> None:
        self._sentences, self._rows = sentences, rows

    def source(self, index: int) -> Tokens:
        """Return the tokens of a source."""
        tokens, plain = self._row(index)
        return self._sentences.source(plain) if tokens is None else tokens[0]

    def target(self, index: int) -> Tokens:
        """Return the tokens of a target."""
        tokens, plain = self._row(index)
        return self._sentences.target(plain) if tokens is None else tokens[1]

    def _row(self, index: int) -> tuple[tuple[Tokens, Tokens] | None, int]:
        """Return the tokens of a changed row, or None, and the index of the plain row."""
        if index >= 0:
            return None, index
        return self._rows.tokens[-1 - index], int(self._rows.plain[-1 - index][0, 1])
