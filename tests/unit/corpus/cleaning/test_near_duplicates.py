"""Near duplicates over shards, compared with an exact comparison of all pairs of rows."""

import csv
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.corpus.cleaning import near_duplicates as module
from pipeline.corpus.cleaning.codepoints import Texts
from pipeline.corpus.cleaning.min_hash import shingle_sets, signatures
from pipeline.corpus.cleaning.near_duplicates import SignatureWriter, near_duplicates
from pipeline.corpus.config import NearDuplicateRule

RULE = NearDuplicateRule()
Rows = Sequence[tuple[str, str]]


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str]]:
    """Rows of the sample, and edited copies of some: with a word more, a word less, or another case and punctuation."""
    path = Path(__file__).parents[4] / "data" / "sample" / "train.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        table = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    sides = [table[0].index(code) for code in ("de", "en")]
    rows = [(row[sides[0]], row[sides[1]]) for row in table[1:] if row[sides[0]] and row[sides[1]]][:700]
    generator = random.Random(1)
    for src, tgt in generator.sample(rows, 200):
        words = src.split()
        edit = generator.randrange(3)
        if edit == 0:
            words.insert(generator.randrange(len(words)), "wirklich")
        elif edit == 1:
            words.pop(generator.randrange(len(words)))
        rows.append((" ".join(words).upper() if edit == 2 else " ".join(words), tgt.rstrip(".") + " …"))
    return rows


def sides_of(rows: Rows) -> list[Texts]:
    return [Texts.normalized(pa.array([row[side] for row in rows], pa.string())) for side in (0, 1)]


def write(rows: Rows, directory: Path, cuts: Sequence[int], batch: int, rule: NearDuplicateRule = RULE) -> list[Path]:
    """Write shards of the rows before, between and after the cuts."""
    shards = []
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        shards.append(directory / f"{len(shards):03d}")
        with SignatureWriter(shards[-1], rule) as writer:
            for first in range(start, stop, batch):
                source, target = sides_of(rows[first : min(stop, first + batch)])
                writer.add(signatures(source.folded, target.folded, rule))
    return shards


def similarities(rows: Rows) -> np.ndarray:
    """Return the exact Jaccard similarity of every two rows."""
    source, target = sides_of(rows)
    values, offsets = shingle_sets(source.folded, target.folded, RULE.shingle_words)
    names, index = np.unique(values, return_inverse=True)
    member = np.zeros((len(rows), len(names)), dtype=np.float32)
    member[np.repeat(np.arange(len(rows)), np.diff(offsets)), index] = 1
    common, sizes = member @ member.T, member.sum(axis=1)
    return common / np.maximum(sizes[:, None] + sizes - common, 1)


def test_groups_are_those_of_an_exact_comparison(rows: list[tuple[str, str]], tmp_path: Path) -> None:
    removed = near_duplicates(write(rows, tmp_path, [], 1000), RULE)
    exact = np.triu(similarities(rows), 1)
    # 0.8 +- four standard deviations of an estimate from 128 hashes, sqrt(0.8 * 0.2 / 128) = 0.035
    surely = np.flatnonzero((exact >= 0.94).any(axis=0))
    never = np.flatnonzero((exact < 0.66).all(axis=0))
    assert len(surely) > 80
    assert len(never) > 500
    assert np.isin(surely, removed).all()
    assert not np.isin(never, removed).any()
    expected = np.flatnonzero((exact >= RULE.threshold).any(axis=0))
    correct = np.intersect1d(expected, removed)
    assert len(correct) > 0.95 * len(expected)  # recall
    assert len(correct) > 0.95 * len(removed)  # precision


@pytest.mark.parametrize(("cuts", "batch"), [([300], 1000), ([1, 2, 450], 37), ([0, 500, 500], 400)])
def test_shards_and_batches_do_not_matter(
    rows: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: list[int], batch: int
) -> None:
    expected = near_duplicates(write(rows, tmp_path / "one", [], len(rows)), RULE)
    assert len(expected) > 100
    for name, value in (("_RUN_KEYS", 2000), ("_FILE_ROWS", 97), ("_PAIRS", 50)):
        monkeypatch.setattr(module, name, value)
    removed = near_duplicates(write(rows, tmp_path / "many", cuts, batch), RULE)
    np.testing.assert_array_equal(removed, expected)
    assert len(list((tmp_path / "many" / f"{len(cuts):03d}").glob("signatures-*"))) > 1


def test_a_chain_is_one_group_and_its_first_row_stays(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(60)]
    chain = [
        " ".join(words[i : i + 40]) for i in (0, 20, 3, 6)
    ]  # neighbours share 37 of 40 words, and 20 none of these
    rows = [(text, "x") for text in (chain[0], "something else entirely", chain[2], chain[1], chain[3])]
    # bigrams of 40 words: 0-3 share 36 of 42, 3-6 too; 0-6 share 33 of 45, less than 0.8
    assert near_duplicates(write(rows, tmp_path, [], 10), RULE).tolist() == [2, 4]


def test_many_copies_of_one_row_are_one_group(tmp_path: Path) -> None:
    rows = [("Datei öffnen", "Open a file")] * 100 + [("Datei schließen", "Close a file")] * 3
    removed = near_duplicates(write(rows, tmp_path, [50], 10), RULE).tolist()
    assert removed == [*range(1, 100), 101, 102]


def test_other_rows_with_a_key_are_compared_among_themselves(tmp_path: Path) -> None:
    """All rows share many bands with the first, but are no near duplicates of it. Two of them are alike."""
    shared = " ".join(f"s{i}" for i in range(60))
    endings = [[f"{letter}{i}" for i in range(20)] for letter in "abcb"]
    rows = [(f"{shared} {' '.join(ending)}", "x") for ending in endings]
    rule = NearDuplicateRule(threshold=0.9)
    assert near_duplicates(write(rows, tmp_path, [], 10, rule), rule).tolist() == [3]


def test_rows_of_punctuation_alone_and_swapped_sides_are_no_duplicates(tmp_path: Path) -> None:
    rows = [("!", "?"), ("!", "?"), ("", ""), ("Haus", "house"), ("house", "Haus"), ("Haus!", "House")]
    assert near_duplicates(write(rows, tmp_path, [], 10), RULE).tolist() == [5]


def test_shards_without_rows(tmp_path: Path) -> None:
    assert len(near_duplicates(write([], tmp_path, [], 10), RULE)) == 0
    assert len(near_duplicates([], RULE)) == 0


def test_an_incomplete_shard_is_refused(tmp_path: Path) -> None:
    def fail() -> None:
        with SignatureWriter(tmp_path / "shard", RULE):
            raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        fail()
    with pytest.raises(ValueError, match=r"near_duplicates\.json is missing.*clean this shard again"):
        near_duplicates([tmp_path / "shard"], RULE)


def test_signatures_of_another_size_are_refused(tmp_path: Path) -> None:
    shards = write([("ein Haus", "a house")], tmp_path, [], 10)
    with pytest.raises(ValueError, match=r"signatures of 128 hashes, but .*num_hashes=64"):
        near_duplicates(shards, NearDuplicateRule(num_hashes=64))
