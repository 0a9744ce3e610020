"""Parts of a translation: what an interrupted attempt left is used, a half-written line is not."""

import json
from pathlib import Path

import pytest

from pipeline.corpus.bitext import read_bitext
from pipeline.decode.merge import merge_translations, translated_rows


def write_parts(directory, rows):
    for rank in range(2):
        records = [{"row": row, "hypothesis": f"h{row}\u2028", "score": -1.0} for row in rows[rank::2]]
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        (directory / f"tr-en.rank-{rank}.jsonl").write_text("".join(lines))


def test_half_written_line_is_cut_off(tmp_path):
    write_parts(tmp_path, [4, 1, 7])
    part = tmp_path / "tr-en.rank-1.jsonl"
    part.write_text(part.read_text() + '{"row": 9, "hypo')
    assert translated_rows(tmp_path, "tr-en") == [1, 4, 7]
    assert part.read_text().endswith("}\n")


def test_merged_file_is_in_the_order_of_the_test_set(tmp_path, prepared):
    bitext = Path(prepared.bitexts[prepared.pairs.index("tr-en")])
    count = len(read_bitext(bitext, "test"))
    write_parts(tmp_path, list(range(count))[::-1])
    merge_translations(tmp_path, "tr-en", bitext)
    lines = [json.loads(line) for line in (tmp_path / "tr-en.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [line["hypothesis"] for line in lines] == [f"h{row}\u2028" for row in range(count)]
    assert [path.name for path in tmp_path.iterdir()] == ["tr-en.jsonl"]


def test_a_missing_row_is_noticed(tmp_path, prepared):
    write_parts(tmp_path, [0, 1])
    with pytest.raises(AssertionError, match="2 of 300 test sentences"):
        merge_translations(tmp_path, "tr-en", Path(prepared.bitexts[1]))
