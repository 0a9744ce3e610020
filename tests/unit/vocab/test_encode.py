from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.corpus.clean import read_bitext
from pipeline.corpus.languages import LangPair
from pipeline.vocab.encode import EncodedSplit, encode, encoded_counts
from pipeline.vocab.encoded import RaggedWriter
from pipeline.vocab.tokenizer import EOS, Vocabulary

BitextOf = Callable[[str], Path]


def encoded(vocabulary: Path, bitext: Path, pair: LangPair, out: Path, limits: tuple[int, int] = (500, 500)) -> Path:
    out.mkdir(exist_ok=True)
    encode(vocabulary, bitext, pair, max_source_tokens=limits[0], max_target_tokens=limits[1], out=out)
    return out


@pytest.mark.parametrize("text", ["de:en", "km:en", "en:zh-Hans", "fr:de"])
def test_encoded_rows_are_the_rows_of_the_bitext(shared: Path, bitext_of: BitextOf, tmp_path: Path, text: str) -> None:
    pair = LangPair(*text.split(":"))
    out = encoded(shared, bitext_of(text), pair, tmp_path / "out")
    vocabulary = Vocabulary.load(shared)
    for split in ("train", "dev", "test"):
        bitext = read_bitext(bitext_of(text), split)
        rows = EncodedSplit.open(out, split)
        counts = encoded_counts(out)["splits"][split]
        sources = vocabulary.encode_source(bitext["src"][:], pair.tgt)
        targets = vocabulary.encode_target(bitext["tgt"][:])
        assert len(rows) == len(bitext) == counts["rows"]
        assert [rows.source(i).tolist() for i in range(len(rows))] == sources
        assert [rows.target(i).tolist() for i in range(len(rows))] == targets
        assert rows.source_lengths.tolist() == [len(source) for source in sources]
        assert rows.target_lengths.dtype == np.int32
        assert counts["source_tokens"] == rows.source_lengths.sum() == len(rows.source_tokens)
        assert counts["target_tokens"] == rows.target_lengths.sum() == len(rows.target_tokens)
        assert counts["source_unk"] == counts["target_unk"] == counts["dropped"] == counts["truncated"] == 0


def test_arrays_are_mapped_and_views(separate: Path, bitext_of: BitextOf, tmp_path: Path) -> None:
    out = encoded(separate, bitext_of("tr:en"), LangPair("tr", "en"), tmp_path / "out")
    rows = EncodedSplit.open(out, "train")
    assert isinstance(rows.source_tokens, np.memmap)
    assert rows.source_tokens.dtype == rows.target_tokens.dtype == np.uint16
    assert np.shares_memory(rows.source(3), rows.source_tokens)
    assert encoded_counts(out)["dtype"] == "uint16"
    with pytest.raises(ValueError, match="split 'valid' is none of train, dev, test"):
        EncodedSplit.open(out, "valid")


def test_long_rows_leave_train_and_are_cut_elsewhere(separate: Path, bitext_of: BitextOf, tmp_path: Path) -> None:
    pair, bitext = LangPair("tr", "en"), bitext_of("tr:en")
    whole = encoded(separate, bitext, pair, tmp_path / "whole")
    short = encoded(separate, bitext, pair, tmp_path / "short", (20, 15))
    for split in ("train", "dev", "test"):
        before, after = EncodedSplit.open(whole, split), EncodedSplit.open(short, split)
        counts = encoded_counts(short)["splits"][split]
        fits = (before.source_lengths <= 20) & (before.target_lengths <= 15)
        assert 0 < fits.sum() < len(before)
        if split == "train":
            assert [after.source(i).tolist() for i in range(len(after))] == [
                before.source(i).tolist() for i in np.flatnonzero(fits)
            ]
            assert (counts["dropped"], counts["truncated"]) == (len(before) - fits.sum(), 0)
            continue
        assert (counts["dropped"], counts["truncated"]) == (0, len(before) - fits.sum())
        for i in range(len(before)):
            source, target = before.source(i).tolist(), before.target(i).tolist()
            assert after.source(i).tolist() == (source if len(source) <= 20 else [*source[:19], EOS])
            assert after.target(i).tolist() == (target if len(target) <= 15 else [*target[:14], EOS])


def test_limits_that_leave_nothing_are_errors(separate: Path, bitext_of: BitextOf, tmp_path: Path) -> None:
    pair, bitext = LangPair("km", "en"), bitext_of("km:en")
    with pytest.raises(ValueError, match="max_target_tokens=2 leaves no room for a tag, a piece and EOS; choose 3"):
        encoded(separate, bitext, pair, tmp_path / "a", (500, 2))
    with pytest.raises(
        ValueError, match="pair km-en: all 90 training rows exceed 500 source or 3 target tokens; raise"
    ):
        encoded(separate, bitext, pair, tmp_path / "b", (500, 3))
