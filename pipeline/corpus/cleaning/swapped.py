"""The check that the two languages of a table are not exchanged."""

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.corpus.tables import Table

if TYPE_CHECKING:
    from pipeline.corpus.cleaning.codepoints import Texts

_SAMPLE = 500  # first rows, which are judged
_LEAST = 10  # rows that must be exchanged
_LEAST_SHARE = 0.3  # of the sample; in tables of the demo in order, 79 to 93 % of the rows can be judged
_MOST_IN_ORDER = 0.05  # rows in order for each exchanged one


def checked_order(table: Table, name: str) -> Table:
    """Return a table of two languages whose first batch is judged when it is taken; other tables as they are.

    name: of the file, for messages.
    The batches raise ValueError where the texts of each language are surely those of the other one.
    """
    if len(table.codes) != 2:
        return table

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in itertools.islice(table.batches, 1):
            _check(batch.slice(0, _SAMPLE), table.codes, name)
            yield batch
        yield from table.batches

    return Table(columns=table.columns, batches=batches())


def _check(batch: pa.RecordBatch, codes: tuple[str, ...], name: str) -> None:
    from pipeline.corpus.cleaning.codepoints import Texts  # late, because it is slow to load

    columns = [Texts.normalized(pc.fill_null(batch.column(code), "")) for code in codes]
    in_order, exchanged = _count(columns, codes), _count(columns, codes[::-1])
    if exchanged < max(_LEAST, _LEAST_SHARE * batch.num_rows) or in_order > _MOST_IN_ORDER * exchanged:
        return
    first, second = codes
    raise ValueError(
        f"{name}: {first} and {second} are swapped: in {exchanged} of the first {batch.num_rows} rows the text of "
        f"{first} is {second}, and that of {second} is {first}; exchange the columns (or the names of the files), or "
        f"name the pair {second}-{first}"
    )


def _count(columns: "Sequence[Texts]", codes: tuple[str, ...]) -> int:
    """Return the number of rows whose columns hold these languages in this order, and surely not in the other one."""
    from pipeline.corpus.cleaning.language_id import wrong_language  # late, because it loads a model

    (first, second), (code, other) = columns, codes
    surely = wrong_language(first, other) & wrong_language(second, code)
    return int((surely & ~wrong_language(first, code) & ~wrong_language(second, other)).sum())
