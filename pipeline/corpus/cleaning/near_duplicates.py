"""Search for rows that are nearly the same as an earlier one, on disk and in bounded memory (MinHash with LSH).

Every shard writes the signatures and the band keys of its rows. One pass over all shards then compares the signatures
of rows that share a key, one part of the keys at a time. The result does not depend on the shards and batches.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from pipeline.corpus.cleaning.codepoints import Hashes, Ints
from pipeline.corpus.cleaning.min_hash import Signatures, band_keys, similarity
from pipeline.corpus.config import NearDuplicateRule

PARTS = 64  # parts of the keys, by their first bits; each part is sorted by itself
_SHARD = "near_duplicates.json"
_KEYS, _ROWS, _BOUNDS = "keys.u64", "rows.u32", "bounds.npy"
_FILE_ROWS = 1 << 18  # rows of one file of signatures, which is mapped as a whole
_RUN_KEYS = 1 << 20  # keys that are sorted and written at a time
_PAIRS = 1 << 16  # pairs of rows that are compared at a time
_ROUNDS = 32  # most rows with which the other rows of a key are compared


class SignatureWriter:
    """A writer of the signatures and keys of one shard. Its rows are numbered from 0, as they are added.

    The shard is complete when the writer is closed without an exception.
    """

    def __init__(self, directory: Path, rule: NearDuplicateRule) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._rule = directory, rule
        self._rows = 0
        self._waiting: list[tuple[Hashes, Ints]] = []
        self._num_waiting = 0
        self._bounds: list[Ints] = []
        self._key_file = (directory / _KEYS).open("wb")
        self._row_file = (directory / _ROWS).open("wb")

    def __enter__(self) -> "SignatureWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._key_file.close()
        self._row_file.close()
        if kind is None:
            np.save(self._directory / _BOUNDS, np.array(self._bounds, dtype=np.int64).reshape(-1, PARTS + 1))
            content = {"rows": self._rows, "num_hashes": self._rule.num_hashes}
            (self._directory / _SHARD).write_text(json.dumps(content) + "\n", encoding="utf-8")

    def add(self, signatures_NK: Signatures) -> None:
        """Append rows, given by their signatures."""
        start = 0
        while start < len(signatures_NK):
            number, place = divmod(self._rows + start, _FILE_ROWS)
            part = signatures_NK[start : start + _FILE_ROWS - place]
            with _signature_file(self._directory, number).open("ab" if place else "wb") as file:
                file.write(np.ascontiguousarray(part).data)
            start += len(part)
        keys, rows = band_keys(signatures_NK, self._rule)
        self._waiting.append((keys, rows + self._rows))
        self._num_waiting += len(keys)
        self._rows += len(signatures_NK)
        if self._num_waiting >= _RUN_KEYS:
            self._flush()

    def _flush(self) -> None:
        if not self._num_waiting:
            return
        keys = np.concatenate([keys for keys, _ in self._waiting])
        rows = np.concatenate([rows for _, rows in self._waiting]).astype(np.uint32)
        order = np.argsort(keys)
        keys = keys[order]
        self._key_file.write(keys.data)
        self._row_file.write(rows[order].data)
        self._bounds.append(_part_bounds(keys))
        self._waiting, self._num_waiting = [], 0


def near_duplicates(shards: Sequence[Path], rule: NearDuplicateRule) -> Ints:
    """Return the rows to remove, sorted: all rows of a group of near duplicates but the first.

    Two rows are in one group if they share a band and their signatures are as similar as the threshold, or if a chain
    of such rows connects them. Rows are numbered through all shards.

    shards: directories that `SignatureWriter` wrote, in the order of the rows.
    Raises ValueError if a shard is incomplete or was written with another number of hashes.
    """
    store = _Store(shards, rule)
    groups = _Groups(store.num_rows)
    for part in range(PARTS):
        keys, rows = store.part(part)
        for leaders, members in _candidates(keys, rows, store, groups, rule.threshold):
            groups.join(leaders, members)
    return groups.others()


def _candidates(
    keys: Hashes, rows: Ints, store: "_Store", groups: "_Groups", threshold: float
) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs of similar rows that share a key.

    The first row of each key is compared with all others. The rows that are not similar to it are compared again in the
    same way, until each row is similar to another one or has been the first.
    """
    order = np.lexsort((rows, keys))
    keys, rows = keys[order], rows[order]
    for _ in range(_ROUNDS):
        begins = np.concatenate(([True], keys[1:] != keys[:-1])) if len(keys) else np.empty(0, dtype=bool)
        shared = ~(begins & np.append(begins[1:], True))  # a key of one row needs no comparison
        keys, rows, begins = keys[shared], rows[shared], begins[shared]
        if not len(keys):
            return
        leaders = rows[np.flatnonzero(begins)][np.cumsum(begins) - 1]
        leaders, members, member_keys = leaders[~begins], rows[~begins], keys[~begins]
        same = groups.roots(leaders) == groups.roots(members)  # joined before, by another key
        unknown = np.flatnonzero(~same)
        for start in range(0, len(unknown), _PAIRS):
            chosen = unknown[start : start + _PAIRS]
            same[chosen] = store.similarity(leaders[chosen], members[chosen]) >= threshold
        yield leaders[same], members[same]
        keys, rows = member_keys[~same], members[~same]


class _Store:
    """The signatures and keys of all shards, with rows that are numbered through all of them."""

    def __init__(self, shards: Sequence[Path], rule: NearDuplicateRule) -> None:
        self._num_hashes = rule.num_hashes
        rows_of = [_read_shard(shard, rule) for shard in shards]
        self._shards = [(shard, np.load(shard / _BOUNDS), rows) for shard, rows in zip(shards, rows_of, strict=True)]
        files: list[tuple[int, Path]] = []  # first row and path
        self.num_rows = 0
        for shard, _, rows in self._shards:
            files += [
                (self.num_rows + start, _signature_file(shard, start // _FILE_ROWS))
                for start in range(0, rows, _FILE_ROWS)
            ]
            self.num_rows += rows
        self._starts = np.array([start for start, _ in files], dtype=np.int64)
        self._files = [path for _, path in files]

    def part(self, part: int) -> tuple[Hashes, Ints]:
        """Return the keys of one part, and the row of each key."""
        keys, rows, first = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.int64)], 0
        for shard, bounds, num_rows in self._shards:
            base = 0
            for run in bounds:
                start, count = base + int(run[part]), int(run[part + 1] - run[part])
                base += int(run[-1])
                keys.append(np.fromfile(shard / _KEYS, dtype=np.uint64, count=count, offset=8 * start))
                part_rows = np.fromfile(shard / _ROWS, dtype=np.uint32, count=count, offset=4 * start)
                rows.append(part_rows.astype(np.int64) + first)
            first += num_rows
        return np.concatenate(keys), np.concatenate(rows)

    def similarity(self, first: Ints, second: Ints) -> npt.NDArray[np.float64]:
        """Return the estimated similarity of the rows with the same index."""
        rows, places = np.unique(np.concatenate((first, second)), return_inverse=True)
        signatures_NK = np.empty((len(rows), self._num_hashes), dtype=np.uint16)
        files = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(files).tolist():
            chosen = files == number
            mapped = np.memmap(self._files[number], dtype=np.uint16, mode="r").reshape(-1, self._num_hashes)
            signatures_NK[chosen] = mapped[rows[chosen] - self._starts[number]]
        return similarity(signatures_NK[places[: len(first)]], signatures_NK[places[len(first) :]])


class _Groups:
    """Groups of rows, each identified by its first row. At the start every row is a group."""

    def __init__(self, num_rows: int) -> None:
        self._earlier = np.arange(num_rows)  # an earlier row of the same group, or the row itself

    def roots(self, rows: Ints) -> Ints:
        """Return the first row of the group of each row."""
        while True:
            earlier = self._earlier[rows]
            if np.array_equal(earlier, rows):
                return rows
            rows = earlier

    def join(self, first: Ints, second: Ints) -> None:
        """Join the groups of the rows with the same index."""
        while len(first):
            first, second = self.roots(first), self.roots(second)
            apart = first != second
            first, second = np.minimum(first[apart], second[apart]), np.maximum(first[apart], second[apart])
            np.minimum.at(
                self._earlier, second, first
            )  # of several pairs for one row one is joined now, the others in the next turn

    def others(self) -> Ints:
        """Return the rows that are not the first of their group."""
        return np.flatnonzero(self._earlier != np.arange(len(self._earlier)))


def _read_shard(shard: Path, rule: NearDuplicateRule) -> int:
    """Return the number of rows of a shard, and check that it is complete."""
    path = shard / _SHARD
    if not path.exists():
        raise ValueError(f"{shard} holds no complete signatures ({_SHARD} is missing); clean this shard again")
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["num_hashes"] != rule.num_hashes:
        raise ValueError(
            f"{path}: signatures of {content['num_hashes']} hashes, but corpus.rules.near_duplicates.num_hashes="
            f"{rule.num_hashes}; clean this shard again"
        )
    return int(content["rows"])


def _signature_file(shard: Path, number: int) -> Path:
    return shard / f"signatures-{number:04d}.u16"


def _part_bounds(keys: Hashes) -> Ints:
    """Return where each part begins in sorted keys, and the end: [PARTS + 1]."""
    firsts = np.arange(PARTS, dtype=np.uint64) << np.uint64(64 - PARTS.bit_length() + 1)
    return np.append(np.searchsorted(keys, firsts), len(keys))
