"""Lines in shards: read back as they were, records gathered from what attempts left."""

import json

import pytest

from pipeline.corpus import tables
from pipeline.decode.shards import LineShard, num_lines, read_lines, write_lines


@pytest.mark.parametrize("group", [3, 50_000])
def test_ranges_of_lines_are_read_back(tmp_path, monkeypatch, group):
    monkeypatch.setattr(tables, "_GROUP_ROWS", group)
    lines = [f"line {number}\u2028\x85 {'x' * number}" for number in range(11)] + ["", " "]
    write_lines(iter(lines), tmp_path / "lines.parquet")
    assert num_lines(tmp_path / "lines.parquet") == 13
    for start in range(13):
        for stop in range(start, 14):
            assert read_lines(tmp_path / "lines.parquet", start, stop) == lines[start:stop]


def test_a_file_of_lines_is_whole_or_not_there(tmp_path):
    def broken():
        yield "one"
        raise ValueError("line 2 is damaged")

    with pytest.raises(ValueError, match="line 2 is damaged"):
        write_lines(broken(), tmp_path / "lines.parquet")
    assert not (tmp_path / "lines.parquet").exists()


def write(path, rows, end=""):
    text = "".join(json.dumps({"row": row, "text": f"t{row}\u2028"}, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text + end, encoding="utf-8")


def test_records_of_several_attempts_are_gathered_without_half_lines(tmp_path):
    shard, other = (LineShard(directory=tmp_path, start=start, stop=start + 5) for start in (10, 15))
    assert not shard.gather()
    assert shard.records() == {}
    write(shard.part(0), [14, 10], end='{"row": 11, "te')
    write(shard.part(1), [12])
    write(other.part(0), [15])
    assert not shard.gather()
    assert sorted(shard.records()) == [10, 12, 14]
    assert not list(tmp_path.glob("*10-*.rank-*"))
    write(shard.part(0), [11, 12, 13])
    assert shard.gather()
    assert {row: record["text"] for row, record in shard.records().items()} == {n: f"t{n}\u2028" for n in range(10, 15)}
    assert other.part(0).exists()
