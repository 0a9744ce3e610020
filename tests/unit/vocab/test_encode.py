import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.corpus.bitext import read_bitext
from pipeline.corpus.funnel import FUNNEL, funnel
from pipeline.corpus.languages import LangPair
from pipeline.stopping import Stopped
from pipeline.vocab import encode as module
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.encode import (
    ENCODED,
    EncodedSplit,
    Shard,
    characters_per_token,
    encode,
    encode_shard,
    encoded_counts,
    merge_shards,
)
from pipeline.vocab.tokenizer import EOS, Vocabulary, train_vocabulary
from tests.interruption import killed_while_removing

BitextOf = Callable[[str], Path]
TR_EN = LangPair("tr", "en")


def encoded(
    vocabulary: Path, bitext: Path, pair: LangPair, out: Path, limits: tuple[int, int] = (500, 500), **options: Any
) -> Path:
    """Encode a pair to `out`, which is made if it does not exist."""
    out.mkdir(exist_ok=True)
    encode(vocabulary, bitext, pair, max_source_tokens=limits[0], max_target_tokens=limits[1], out=out, **options)
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


def test_characters_of_a_token_are_those_of_the_text_that_is_kept(
    separate: Path, bitext_of: BitextOf, tmp_path: Path
) -> None:
    bitext = bitext_of("tr:en")
    texts = read_bitext(bitext, "dev")["tgt"][:]
    tokens = Vocabulary.load(separate).encode_target(texts)
    whole = encoded(separate, bitext, TR_EN, tmp_path / "whole")
    assert characters_per_token(separate, whole) == sum(map(len, texts)) / sum(map(len, tokens))
    cut = encoded(separate, bitext, TR_EN, tmp_path / "cut", limits=(500, 9))
    kept = [Vocabulary.load(separate).decode_target([row[:8]])[0] for row in tokens]
    assert characters_per_token(separate, cut) == sum(map(len, kept)) / sum(min(9, len(row)) for row in tokens)


def test_arrays_are_mapped_and_views(separate: Path, bitext_of: BitextOf, tmp_path: Path) -> None:
    out = encoded(separate, bitext_of("tr:en"), TR_EN, tmp_path / "out")
    rows = EncodedSplit.open(out, "train")
    assert isinstance(rows.source_tokens.base, np.memmap)
    assert rows.source_tokens.dtype == rows.target_tokens.dtype == np.uint16
    assert np.shares_memory(rows.source(3), rows.source_tokens)
    assert encoded_counts(out)["dtype"] == "uint16"
    with pytest.raises(ValueError, match="split 'valid' is none of train, dev, test"):
        EncodedSplit.open(out, "valid")


def test_long_rows_leave_train_and_are_cut_elsewhere(separate: Path, bitext_of: BitextOf, tmp_path: Path) -> None:
    bitext = bitext_of("tr:en")
    whole = encoded(separate, bitext, TR_EN, tmp_path / "whole")
    short = encoded(separate, bitext, TR_EN, tmp_path / "short", (20, 15))
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
    with pytest.raises(
        ValueError, match=r"target=2 of batch.shapes leaves no room for a tag, a piece and EOS; choose 3"
    ):
        encoded(separate, bitext, pair, tmp_path / "a", (500, 2))
    with pytest.raises(
        ValueError,
        match=r"pair km-en: all \d+ training rows exceed 500 source or 3 target tokens; raise source",
    ):
        encoded(separate, bitext, pair, tmp_path / "b", (500, 3))


def digests(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_no_number_of_shards_or_rows_of_a_chunk_changes_a_byte(
    separate: Path, bitext_of: BitextOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (separate, bitext_of("tr:en"), TR_EN)
    whole = digests(encoded(*arguments, tmp_path / "whole", (20, 15)))
    assert len(whole) == 13
    rows = funnel(bitext_of("tr:en"))["train"]["kept"]

    def run_backwards(function: Callable[..., Any], shards: list[Shard]) -> list[Any]:
        return [function(shard) for shard in shards[::-1]][::-1]

    for number in (2, 3):
        options = {"shard_rows": -(-rows // number), "threads": number, "run": run_backwards}
        assert digests(encoded(*arguments, tmp_path / str(number), (20, 15), **options)) == whole
    monkeypatch.setattr(module, "_CHUNK_ROWS", 1)
    assert digests(encoded(*arguments, tmp_path / "rows", (20, 15))) == whole


def test_shards_of_an_interrupted_attempt_are_kept(separate: Path, bitext_of: BitextOf, tmp_path: Path) -> None:
    bitext, out = bitext_of("tr:en"), tmp_path / "out"
    whole = digests(encoded(separate, bitext, TR_EN, tmp_path / "whole"))

    def attempt(run: Callable[..., list[dict[str, list[int]]]], shards: int) -> None:
        rows = -(-funnel(bitext)["train"]["kept"] // shards)
        encoded(separate, bitext, TR_EN, out, shard_rows=rows, run=run)

    def stop_after_one(function: Callable[..., Any], shards: list[Shard]) -> list[dict[str, list[int]]]:
        function(shards[0])
        raise Stopped("encode")

    def again(function: Callable[..., Any], shards: list[Shard]) -> list[dict[str, list[int]]]:
        before = (shards[0].out / "train.src.tokens.npy").stat()
        counts = [function(shard) for shard in shards]
        assert (shards[0].out / "train.src.tokens.npy").stat() == before
        return counts

    with pytest.raises(Stopped):
        attempt(stop_after_one, 2)
    attempt(again, 2)
    assert digests(out) == whole
    (out / ENCODED).unlink()  # the file that marks the end
    with pytest.raises(Stopped):
        attempt(stop_after_one, 3)
    attempt(lambda function, shards: [function(shard) for shard in shards], 2)  # shards of other rows
    assert digests(out) == whole


def test_an_interrupted_removal_of_the_shards_continues(
    separate: Path, bitext_of: BitextOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bitext, out = bitext_of("tr:en"), tmp_path / "out"
    whole = digests(encoded(separate, bitext, TR_EN, tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "remove_tree", killed_while_removing)
        with pytest.raises(KeyboardInterrupt):
            encoded(separate, bitext, TR_EN, out, shard_rows=100)
    assert (out / "shards").is_dir()
    encoded(separate, bitext, TR_EN, out, shard_rows=100)
    assert digests(out) == whole
    assert not (out / "shards").exists()


def test_merging_is_associative(separate: Path, bitext_of: BitextOf, tmp_path: Path) -> None:
    bitext = bitext_of("tr:en")
    rows = funnel(bitext)["train"]["kept"]
    cuts = [0, rows // 5, rows // 2, rows]

    def shard(start: int, stop: int) -> tuple[Path, dict[str, list[int]]]:
        out = tmp_path / f"{start}-{stop}"
        out.mkdir()
        fields = {"limits": (20, 15), "ends": (rows // 3, rows), "tags": ("", ""), "threads": 1, "out": out}
        part = Shard(vocabulary=separate, bitext=bitext, pair=TR_EN, split="train", start=start, stop=stop, **fields)
        return out, encode_shard(part)

    def merge(name: str, *parts: tuple[Path, dict[str, list[int]]]) -> tuple[Path, dict[str, list[int]]]:
        out = tmp_path / name
        out.mkdir()
        return out, merge_shards([path for path, _ in parts], [counts for _, counts in parts], "train", out)

    a, b, c = (shard(start, stop) for start, stop in zip(cuts, cuts[1:], strict=False))
    left = merge("left", merge("ab", a, b), c)
    right = merge("right", a, merge("bc", b, c))
    whole = shard(0, rows)
    assert digests(left[0]) == digests(right[0]) == digests(whole[0])
    assert left[1] == right[1] == whole[1]
    assert all(count > 0 for count in whole[1]["rows"] + whole[1]["dropped"])


@pytest.fixture(scope="module")
def tagged(bitext_of: BitextOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of tr-en. The second half, without the last row, comes from a source with a tag."""
    out = tmp_path_factory.mktemp("tagged") / "bitext"
    shutil.copytree(bitext_of("tr:en"), out)
    content = funnel(out)
    kept = content["train"]["kept"]
    content["sources"] = [
        {"name": "books", "tag": "", "kept": kept // 2},
        {"name": "backtranslated", "tag": "bt", "kept": kept - kept // 2 - 1},
        {"name": "nothing", "tag": "other", "kept": 0},
        {"name": "web", "tag": "", "kept": 1},
    ]
    (out / FUNNEL).write_text(json.dumps(content), encoding="utf-8")
    return out


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_sources_are_ranges_and_tags_follow_the_language(
    tagged: Path, bitext_of: BitextOf, tmp_path: Path, kind: str
) -> None:
    config = VocabConfig(shared=kind == "shared", source_size=1000, target_size=1000, sample_lines=500)
    vocabulary, plain = tmp_path / "vocabulary", tmp_path / "plain"
    for out, bitext in ((vocabulary, tagged), (plain, bitext_of("tr:en"))):
        out.mkdir()
        train_vocabulary(config, {TR_EN: bitext}, out)
    loaded = Vocabulary.load(vocabulary)
    assert loaded.source_tags == {"bt": 5, "other": 6}
    assert [loaded.source_model.id_to_piece(i) for i in (4, 5, 6, 7)] == ["<2en>", "<bt>", "<other>", "<0x00>"]
    assert Vocabulary.load(plain).source_tags == {}
    assert "source_tags" not in json.loads((plain / "vocab.json").read_text(encoding="utf-8"))
    assert "<bt>" in loaded.decode_target(loaded.encode_target(["a <bt> b"]))[0]  # in a text it is no symbol
    if config.shared:
        assert loaded.decode_target([[5, *loaded.encode_target(["a"])[0]]]) == ["a"]

    out = encoded(vocabulary, tagged, TR_EN, tmp_path / "out", (40, 30))
    counts = encoded_counts(out)
    texts = read_bitext(tagged, "train")
    first, last = len(texts) // 2, len(texts) - 1
    expected = [
        [ids[0], *([5] if first <= row < last else []), *ids[1:]]
        for row, ids in enumerate(loaded.encode_source(texts["src"][:], "en"))
    ]
    targets = [len(ids) for ids in loaded.encode_target(texts["tgt"][:])]
    fits = [row for row in range(len(texts)) if len(expected[row]) <= 40 and targets[row] <= 30]
    assert any(len(ids) == 41 and ids[1] == 5 for ids in expected)  # the tag counts as a token
    rows = EncodedSplit.open(out, "train")
    assert [rows.source(i).tolist() for i in range(len(rows))] == [expected[row] for row in fits]
    in_source = [
        sum(row < first for row in fits),
        sum(first <= row < last for row in fits),
        0,
        sum(row == last for row in fits),
    ]
    assert [(source["name"], source["tag"], source["rows"]) for source in counts["sources"]] == list(
        zip(("books", "backtranslated", "nothing", "web"), ("", "bt", "other", ""), in_source, strict=True)
    )
    test = EncodedSplit.open(out, "test")
    assert not any(5 in test.source(i) for i in range(len(test)))
    with pytest.raises(ValueError, match="tag 'bt' of a source is not in the vocabulary, which has none; train"):
        encoded(plain, tagged, TR_EN, tmp_path / "wrong")


def test_tags_that_cannot_be_symbols_are_refused(tagged: Path, tmp_path: Path) -> None:
    bitext = tmp_path / "bitext"
    shutil.copytree(tagged, bitext)
    config = VocabConfig(shared=False, source_size=1000, target_size=1000)
    for tag in ("2en", "pad", "s", "0x41", "b t"):
        content = funnel(tagged)
        content["sources"][1]["tag"] = tag
        (bitext / FUNNEL).write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(ValueError, match=f"tag '{tag}' of a source cannot be a symbol; choose letters"):
            train_vocabulary(config, {TR_EN: bitext}, tmp_path)
