"""Halves of a cleaned pair: every row is scored once, by models that were not trained on it."""

import json

import numpy as np
import pyarrow as pa
import pytest

from pipeline.corpus.bitext import SCHEMA, write_bitext
from pipeline.corpus.cleaning.halves import second_half, training_rows, write_half
from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from tests.corpora import bitext_rows

DE_EN, EN_DE = LangPair("de", "en"), LangPair("en", "de")


@pytest.fixture
def cleaned(tmp_path):
    """A function that writes a cleaned pair of two sources."""

    def write(web, books):
        out = tmp_path / "cleaned"
        out.mkdir()
        rows = {"train": web + books, "dev": 2, "test": 1}
        for split, count in rows.items():
            sides = [[f"{side} {split} {row}" for row in range(count)] for side in ("de", "en")]
            write_bitext(
                out / f"{split}.arrow", [pa.RecordBatch.from_arrays(list(map(pa.array, sides)), schema=SCHEMA)]
            )
        sources = [{"name": "web", "tag": "<web>", "kept": web}, {"name": "books", "tag": "", "kept": books}]
        content = {"pair": "de-en", "sources": sources, **{split: {"kept": count} for split, count in rows.items()}}
        (out / "funnel.json").write_text(json.dumps(content))
        return out

    return write


def half(cleaned, pair, number, out, *, most=1000, trusted=()):
    out.mkdir()
    write_half(cleaned, pair, half=number, most=most, trusted=trusted, seed=1, out=out)
    return {split: bitext_rows(out, split) for split in ("train", "dev", "test")}


def test_the_rows_that_a_half_scores_are_those_that_the_other_one_trains_on(cleaned, tmp_path):
    path = cleaned(300, 100)
    first, second = (half(path, DE_EN, number, tmp_path / str(number)) for number in (0, 1))
    assert (first["train"], first["test"]) == (second["test"], second["train"])
    assert sorted(first["train"] + first["test"]) == sorted(bitext_rows(path, "train"))
    assert 160 < len(first["train"]) < 240
    assert first["dev"] == bitext_rows(path, "dev")
    mask = second_half(400, 1)
    assert first["test"] == [row for row, second in zip(bitext_rows(path, "train"), mask, strict=True) if second]
    assert (mask != second_half(400, 2)).any()


def test_the_other_direction_has_the_same_rows_with_its_sides_exchanged(cleaned, tmp_path):
    path = cleaned(50, 0)
    forward, backward = (half(path, pair, 0, tmp_path / pair.name) for pair in (DE_EN, EN_DE))
    assert backward == {split: [(en, de) for de, en in rows] for split, rows in forward.items()}
    record = funnel(tmp_path / "en-de")
    assert record["pair"] == "en-de"
    assert [source["kept"] for source in record["sources"]] == [record["train"]["kept"]] == [len(forward["train"])]
    assert record["sources"][0]["tag"] == "", "a tag of a source would be a sign of its quality to the model"


def test_models_train_on_a_sample_and_on_trusted_sources(cleaned):
    path = cleaned(300, 100)
    everything, sample, trusted = (
        training_rows(path, half=1, most=most, trusted=names, seed=1)
        for most, names in ((400, ()), (20, ()), (400, ["books"]))
    )
    assert np.array_equal(everything, second_half(400, 1))
    assert sample.sum() == 20
    assert not (sample & ~everything).any()
    assert np.array_equal(trusted, everything & (np.arange(400) >= 300))


def test_a_pair_of_one_row_has_no_halves(cleaned, tmp_path):
    with pytest.raises(
        ValueError, match=r"pair de-en: its 1 rows are too few .* corpus.learned.remove_of=\{de-en: 0\}"
    ):
        half(cleaned(1, 0), DE_EN, 0, tmp_path / "out")


def test_too_few_trusted_rows_are_named_as_the_cause(cleaned, tmp_path):
    path = cleaned(40, 1)
    half_without = int(not second_half(41, 1)[40])  # the one trusted row is in the other half
    message = r"pair de-en: 1 of its 41 cleaned rows are of corpus.learned.trusted=\['books'\], too few for two halves"
    with pytest.raises(ValueError, match=message):
        half(path, DE_EN, half_without, tmp_path / "out", trusted=["books"])
