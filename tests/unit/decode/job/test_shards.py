"""Lines in shards: read back as they were, records gathered from what attempts left."""

import json

import pytest

from pipeline.corpus import tables
from pipeline.decode.job.line_file import num_lines, read_lines, write_lines
from pipeline.decode.job.shards import Shard, make_shards


@pytest.mark.parametrize("group", [3, 50_000])
def test_ranges_of_lines_are_read_back(tmp_path, monkeypatch, group):
    monkeypatch.setattr(tables, "_GROUP_ROWS", group)
    lines = [f"line {number}\u2028\x85 {'x' * number}" for number in range(11)] + ["", " "]
    write_lines(iter(lines), tmp_path / "lines.parquet")
    assert num_lines(tmp_path / "lines.parquet") == 13
    for start in range(13):
        for stop in range(start, 14):
            assert read_lines(tmp_path / "lines.parquet", start, stop) == lines[start:stop]


def test_a_file_of_lines_is_complete_or_absent(tmp_path):
    def broken():
        yield "one"
        raise ValueError("line 2 is damaged")

    with pytest.raises(ValueError, match="line 2 is damaged"):
        write_lines(broken(), tmp_path / "lines.parquet")
    assert not (tmp_path / "lines.parquet").exists()


def test_shards_cover_all_lines_and_lines_are_read_once(tmp_path):
    lines = [f"line {number}" for number in range(7)]
    shards = make_shards(tmp_path / "work", iter(lines), target="en", rows=3)
    assert [shard.texts() for shard in shards] == [lines[:3], lines[3:6], lines[6:]]
    assert make_shards(tmp_path / "work", iter(["other"]), target="en", rows=3) == shards
    (shard,) = make_shards(tmp_path / "work", [], target="en")
    assert shard.texts() == lines
    assert make_shards(tmp_path / "empty", [], target="en") == []


def write(path, rows, end=""):
    text = "".join(json.dumps({"row": row, "text": f"t{row}\u2028"}, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text + end, encoding="utf-8")


def test_records_of_several_attempts_are_gathered_without_half_lines(tmp_path):
    shard, neighbour = (Shard(directory=str(tmp_path), target="en", start=start, stop=start + 5) for start in (10, 15))
    assert not shard.gather()
    assert shard.records() == {}
    write(shard.part(0), [14, 10], end='{"row": 11, "te')
    write(shard.part(1), [12])
    write(neighbour.part(0), [15])
    assert not shard.gather()
    assert sorted(shard.records()) == [10, 12, 14]
    assert not list(tmp_path.glob("*10-*.rank-*"))
    write(shard.part(0), [11, 12, 13])
    assert shard.gather()
    assert {row: record["text"] for row, record in shard.records().items()} == {n: f"t{n}\u2028" for n in range(10, 15)}
    assert neighbour.part(0).exists()
