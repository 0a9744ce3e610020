"""Rows of a data set that `where` of an entry chooses, in every kind of file."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.corpus.sources.hub_tables import open_dataset
from tests.unit.corpus.sources.test_hub import entry, rows


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_only_rows_with_the_values_are_read(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "maker" / "corpus"
    directory.mkdir(parents=True)
    columns = {"a": ["1", "2", "3", "4"], "b": ["5", "6", "7", "8"], "bad": [False, True, None, False]}
    kept = {"a": ["1", "4"], "b": ["5", "8"]}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path = directory / f"train.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({**columns, "n": [1, 2, 3, 4]}), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps({**record, "n": 1}) + "\n" for record in records))
    else:
        path.write_text("a,b,bad,n\n1,5,false,1\n2,6,true,1\n3,7,,1\n4,8,false,1\n")
    chosen = entry("", columns={"a": "de", "b": "en"}, where={"bad": "false"})
    table = open_dataset(chosen, tmp_path, tmp_path / "cache", {})
    assert rows(table) == [dict(zip(("de", "en"), row, strict=True)) for row in zip(*kept.values(), strict=True)]
    numbered = replace(chosen, where={"bad": "false", "n": "1"})
    assert len(rows(open_dataset(numbered, tmp_path, tmp_path / "cache", {}))) == (1 if kind == "parquet" else 2)
    if kind != "csv":
        with pytest.raises(ValueError, match="field 'bad' is bool, no text; the texts are a, b"):
            open_dataset(replace(chosen, columns={"a": "de", "bad": "en"}), tmp_path, tmp_path / "cache", {})


def test_a_flag_may_be_null_in_the_first_row(tmp_path: Path) -> None:
    directory = tmp_path / "maker" / "corpus"
    directory.mkdir(parents=True)
    flags = [None, True, False]
    lines = [json.dumps({"a": str(row), "b": "x", "bad": flag, "none": None}) for row, flag in enumerate(flags)]
    (directory / "train.jsonl").write_text("\n".join(lines) + "\n")
    chosen = entry("", columns={"a": "de", "b": "en"}, where={"bad": "false"})
    assert rows(open_dataset(chosen, tmp_path, tmp_path / "cache", {})) == [{"de": "2", "en": "x"}]
    with pytest.raises(ValueError, match="no field 'c' in where; it has a, b, bad, none"):
        open_dataset(replace(chosen, where={"c": "x"}), tmp_path, tmp_path / "cache", {})


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_later_file_without_the_field_is_an_error(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "maker" / "corpus"
    directory.mkdir(parents=True)
    for number, columns in enumerate([{"a": ["1"], "b": ["5"], "bad": [False]}, {"a": ["2"], "b": ["6"]}]):
        path = directory / f"train-{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table(columns), path)
        else:
            path.write_text(json.dumps({name: values[0] for name, values in columns.items()}) + "\n")
    chosen = entry("", columns={"a": "de", "b": "en"}, where={"bad": "false"})
    with pytest.raises(ValueError, match=r"after row 1: .*no field 'bad' in where; it has a, b"):
        rows(open_dataset(chosen, tmp_path, tmp_path / "cache", {}))
