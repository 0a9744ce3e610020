"""Signatures have the properties that theory predicts."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.corpus.cleaning.codepoints import Folded, Texts
from pipeline.corpus.cleaning.min_hash import band_keys, band_shape, shingle_sets, signatures, similarity
from pipeline.corpus.config import NearDuplicateRule

SHINGLES = 60


def folded(*texts: str) -> Folded:
    return Texts.normalized(pa.array(texts, pa.string())).folded


def pairs_of_similarity(jaccard: float, num: int, seed: int) -> tuple[list[str], list[str]]:
    """Return pairs of texts of distinct words that share so many words that their sets have this similarity."""
    shared = round(2 * SHINGLES * jaccard / (1 + jaccard))
    assert shared / (2 * SHINGLES - shared) == pytest.approx(jaccard, abs=0.011)
    generator = np.random.Generator(np.random.PCG64(seed))
    words = [f"w{number}" for number in generator.permutation(num * (2 * SHINGLES - shared))]
    first, second = [], []
    for start in range(0, len(words), 2 * SHINGLES - shared):
        own = words[start : start + 2 * SHINGLES - shared]
        first.append(" ".join(own[:SHINGLES]))
        second.append(" ".join(own[SHINGLES - shared :]))
    return first, second


def exact(jaccard: float) -> float:
    shared = round(2 * SHINGLES * jaccard / (1 + jaccard))
    return shared / (2 * SHINGLES - shared)


@pytest.mark.parametrize("jaccard", [0.2, 0.5, 0.8])
def test_the_estimate_has_the_error_of_theory(jaccard: float) -> None:
    """The share of equal places is binomial: mean J, standard deviation sqrt(J (1 - J) / K) <= 0.5 / sqrt(K).

    Broder, On the resemblance and containment of documents, 1997, section 3.
    """
    rule = NearDuplicateRule(shingle_words=1)
    num = 600
    sides = [folded(*texts) for texts in pairs_of_similarity(jaccard, num, seed=1)]
    nothing = folded(*[""] * num)
    estimate = similarity(*(signatures(side, nothing, rule) for side in sides))
    error, deviation = estimate - exact(jaccard), (exact(jaccard) * (1 - exact(jaccard)) / rule.num_hashes) ** 0.5
    assert abs(error.mean()) < 4 * deviation / num**0.5  # four standard errors of the mean
    assert error.std() == pytest.approx(deviation, rel=0.12)  # four standard errors of a deviation: 4 / sqrt(2 * 600)
    assert np.abs(error).max() < 4.5 * deviation  # 600 draws beyond 4.5 deviations: 1 in 250


@pytest.mark.parametrize(("jaccard", "chance"), [(0.4, 0.186), (0.5, 0.470), (0.6, 0.802), (0.8, 0.9996)])
def test_rows_share_a_band_as_often_as_the_book_says(jaccard: float, chance: float) -> None:
    """20 bands of 5 hashes: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, figure 3.8."""
    rule = NearDuplicateRule(threshold=0.75, num_hashes=100, shingle_words=1)
    bands, width = band_shape(rule)
    assert (bands, width) == (20, 5)
    num = 1000
    nothing = folded(*[""] * num)
    keys = []
    for texts in pairs_of_similarity(jaccard, num, seed=2):
        row_keys, rows = band_keys(signatures(folded(*texts), nothing, rule), rule)
        order = np.argsort(rows, kind="stable")
        keys.append(row_keys[order].reshape(num, bands))
    shares = (keys[0] == keys[1]).any(axis=1).mean()
    assert shared_chance(jaccard) == pytest.approx(chance, abs=0.001)
    assert shares == pytest.approx(shared_chance(exact(jaccard)), abs=4 * (0.25 / num) ** 0.5)  # four standard errors


def shared_chance(jaccard: float) -> float:
    return 1 - (1 - jaccard**5) ** 20


def test_shingles_by_hand() -> None:
    """`the cat sat` has the cat, cat sat; `the cat sat down` one more; the target adds one each: J = 3 / 4."""

    def sets(*rows: tuple[str, str]) -> list[set[int]]:
        sides = [folded(*(row[side] for row in rows)) for side in (0, 1)]
        values, offsets = shingle_sets(*sides, 2)
        return [set(values[a:b].tolist()) for a, b in zip(offsets, offsets[1:], strict=False)]

    first, second = sets(("the cat sat", "miau"), ("The cat, sat down", "Miau!"))
    assert (len(first & second), len(first | second)) == (3, 4)
    han, longer = sets(("简体中文版", ""), ("简体中文", ""))  # four letters a shingle
    assert (len(han & longer), len(han | longer)) == (1, 2)
    source, target, neither = sets(("the cat", ""), ("", "the cat"), ("?", "..."))
    assert len(source) == len(target) == 1
    assert not source & target
    assert not neither


@pytest.mark.parametrize(
    ("threshold", "num_hashes", "bands", "width"), [(0.8, 128, 21, 6), (0.5, 128, 42, 3), (0.97, 16, 3, 5)]
)
def test_bands_find_rows_at_the_threshold(threshold: float, num_hashes: int, bands: int, width: int) -> None:
    rule = NearDuplicateRule(threshold=threshold, num_hashes=num_hashes)
    assert band_shape(rule) == (bands, width)
    assert 1 - (1 - threshold**width) ** bands >= 0.99
    if width < num_hashes:
        assert 1 - (1 - threshold ** (width + 1)) ** (num_hashes // (width + 1)) < 0.99


def test_a_signature_depends_on_its_row_alone() -> None:
    rule = NearDuplicateRule()
    src, tgt = ["ein altes Haus", "", "Datei öffnen", "!"], ["an old house", "x", "", "?"]
    together = signatures(folded(*src), folded(*tgt), rule)
    for row in range(4):
        alone = signatures(folded(src[row]), folded(tgt[row]), rule)
        np.testing.assert_array_equal(alone[0], together[row])
    assert (together[3] == 0xFFFF).all()
