"""Cleaned rows on disk, which are written in batches of any size, and read from any row."""

import random
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from datasets.arrow_writer import ArrowWriter

from pipeline.corpus.bitext import SCHEMA, iter_bitext, num_rows, read_bitext, write_bitext

ROWS = [(f"s{i}" * (i % 7), f"t{i}") for i in range(3456)]


def batch(rows: list[tuple[str, str]]) -> pa.RecordBatch:
    return pa.record_batch({"src": [src for src, _ in rows], "tgt": [tgt for _, tgt in rows]})


def rows_of(directory: Path, *limits: int | None) -> list[tuple[str, str]]:
    batches = [part.to_pydict() for part in iter_bitext(directory, "train", *limits)]
    return [row for part in batches for row in zip(part["src"], part["tgt"], strict=True)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bitext")
    assert write_bitext(directory / "train.arrow", [batch(ROWS)]) == len(ROWS)
    return directory


def test_bytes_depend_on_the_rows_alone(written: Path, tmp_path: Path) -> None:
    pieces, rng = [], random.Random(1)
    remaining = ROWS
    while remaining:
        size = rng.choice((0, 1, 999, 1001))
        pieces.append(batch(remaining[:size]))
        remaining = remaining[size:]
    write_bitext(tmp_path / "train.arrow", pieces)
    assert (tmp_path / "train.arrow").read_bytes() == (written / "train.arrow").read_bytes()
    bitext = read_bitext(tmp_path, "train")
    assert list(zip(bitext["src"], bitext["tgt"], strict=True)) == ROWS


@pytest.mark.parametrize("start", [0, 1, 999, 1000, 1001, 3455, 3456, 5000])
@pytest.mark.parametrize("stop", [None, 0, 1, 1000, 2001, 3456, 5000])
def test_any_range_of_rows_is_read(written: Path, start: int, stop: int | None) -> None:
    assert rows_of(written, start, stop) == ROWS[start:stop]
    assert num_rows(written, "train") == len(ROWS)


def test_earlier_batches_are_not_read(written: Path, tmp_path: Path) -> None:
    content = bytearray((written / "train.arrow").read_bytes())
    start = content.index(b"t0t1t2t3")
    content[start : start + 1500] = b"\xff" * 1500  # no UTF-8, in the body of the first batch
    (tmp_path / "train.arrow").write_bytes(content)
    assert rows_of(tmp_path, 1000) == ROWS[1000:]
    assert num_rows(tmp_path, "train") == len(ROWS)
    with pytest.raises(UnicodeDecodeError):
        rows_of(tmp_path, 0, 999)


def test_files_that_datasets_wrote_are_read(tmp_path: Path) -> None:
    features = datasets.Features({"src": datasets.Value("string"), "tgt": datasets.Value("string")})
    with ArrowWriter(features=features, path=str(tmp_path / "train.arrow"), writer_batch_size=700) as writer:
        for src, tgt in ROWS:
            writer.write({"src": src, "tgt": tgt})
        writer.finalize()
    assert rows_of(tmp_path, 650, 1500) == ROWS[650:1500]
    assert num_rows(tmp_path, "train") == len(ROWS)


def test_an_empty_file_and_an_empty_batch_have_no_rows(tmp_path: Path) -> None:
    write_bitext(tmp_path / "train.arrow", [])
    assert rows_of(tmp_path) == []
    assert num_rows(tmp_path, "train") == 0
    with pa.ipc.new_stream(str(tmp_path / "train.arrow"), SCHEMA) as writer:
        for rows in ([], ROWS[:3], [], ROWS[3:5]):
            writer.write_batch(batch(rows).cast(SCHEMA))
    assert rows_of(tmp_path, 2) == ROWS[2:5]
