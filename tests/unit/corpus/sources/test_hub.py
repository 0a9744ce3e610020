import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.sources.cards import read_card
from pipeline.corpus.sources.download import Patience
from pipeline.corpus.sources.hub import keep_below
from pipeline.corpus.sources.hub_tables import open_dataset
from pipeline.corpus.tables import Table
from tests.unit.corpus.sources.file_server import free_port
from tests.unit.corpus.sources.hub_server import COMMIT, Hub, serve_hub

SHORT = Patience(timeout=2, attempts=2, pause=0.01)
CARD = """---
license: cc-by-4.0
configs:
- config_name: de-en
  data_files:
  - split: train
    path: de-en/train-*
  - split: test
    path: de-en/test-*
- config_name: en-fr
  data_files:
  - split: train
    path: [en-fr/a.parquet, en-fr/train.parquet]
---
# Corpus

@inproceedings{muster-2020,
    title = "A corpus",
}
"""


def translations(src: str, tgt: str, num_rows: int) -> pa.Table:
    rows = [{src: f"{src} {row}", tgt: f"{tgt} {row}"} for row in range(num_rows)]
    kind = pa.struct([(src, pa.string()), (tgt, pa.string())])
    return pa.table({"id": pa.array(range(num_rows)), "translation": pa.array(rows, kind)})


def write_dataset(directory: Path) -> Path:
    """Write files as they are on the hub: Parquet in a directory for each configuration, listed by the card."""
    for name, table in {
        "de-en/train-00000-of-00002.parquet": translations("de", "en", 2500),
        "de-en/train-00001-of-00002.parquet": translations("de", "en", 7),
        "de-en/test-00000-of-00001.parquet": translations("de", "en", 3),
        "en-fr/a.parquet": translations("en", "fr", 1),
        "en-fr/train.parquet": translations("en", "fr", 1),
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, directory / name, row_group_size=1000)
    (directory / "README.md").write_text(CARD)
    return directory


def entry(config: str = "de-en", part: str = "train", **fields: object) -> FileEntry:
    return FileEntry(split="train", format="huggingface", dataset="maker/corpus", config=config, part=part, **fields)


def rows(table: Table) -> list[dict[str, str | None]]:
    return [row for batch in table.batches for row in batch.to_pylist()]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls = []

    def connect(*args: object) -> None:
        calls.append(args)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", connect)
    return lambda: len(calls)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    write_dataset(tmp_path / "hub" / "maker" / "corpus")
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_XET_CACHE", str(tmp_path / "xet"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", constants.HF_HUB_CACHE)
    with serve_hub(Hub(tmp_path / "hub")) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def test_a_local_copy_is_read_without_network_and_without_copies(tmp_path: Path, no_network: Callable[[], int]) -> None:
    write_dataset(tmp_path / "maker" / "corpus")
    columns = {"translation.de": "de", "translation.en": "en", "id": "document"}
    table = open_dataset(entry(columns=columns), tmp_path, tmp_path / "cache", {})
    assert table.columns == ("de", "en", "document")
    batches = list(table.batches)
    assert [batch.num_rows for batch in batches] == [2507]
    assert batches[0].schema == pa.schema([(name, pa.string()) for name in table.columns])
    assert batches[0].slice(2499, 2).to_pylist() == [
        {"de": "de 2499", "en": "en 2499", "document": "2499"},
        {"de": "de 0", "en": "en 0", "document": "0"},
    ]
    assert no_network() == 0
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_changed_copy_is_read_again(tmp_path: Path) -> None:
    directory = write_dataset(tmp_path / "maker" / "corpus")
    for count in (3, 4):
        pq.write_table(translations("de", "en", count), directory / "de-en" / "test-00000-of-00001.parquet")
        assert len(rows(open_dataset(entry(part="test"), tmp_path, tmp_path / "cache", {}))) == count


def test_a_part_of_a_data_set_is_enough(tmp_path: Path) -> None:
    """`hf download --include 'de-en/test-*'` leaves such a part, with notes in a hidden directory."""
    directory = write_dataset(tmp_path / "maker" / "corpus")
    for path in (*directory.glob("en-fr/*"), *directory.glob("de-en/train-*")):
        path.unlink()
    (directory / ".cache").mkdir()
    (directory / ".cache" / "test-1.parquet").write_text("not this one")
    assert len(rows(open_dataset(entry(part="test"), tmp_path, tmp_path / "cache", {}))) == 3
    with pytest.raises(ValueError, match=r"maker/corpus: de-en/train-\* of its configuration de-en is not there; add"):
        open_dataset(entry(), tmp_path, tmp_path / "cache", {})


def test_a_copy_that_was_not_finished(tmp_path: Path) -> None:
    directory = write_dataset(tmp_path / "maker" / "corpus")
    (directory / "de-en" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(ValueError, match=r"train-00001-of-00002.parquet is one of 2 files, 1 are there; fetch"):
        open_dataset(entry(), tmp_path, tmp_path / "cache", {})
    assert len(rows(open_dataset(entry(part="test"), tmp_path, tmp_path / "cache", {}))) == 3


def test_languages_of_translations_and_alternative_configurations(tmp_path: Path) -> None:
    write_dataset(tmp_path / "maker" / "corpus")
    table = open_dataset(entry("fr-en|en-fr"), tmp_path, tmp_path / "cache", {"fr": "fr-CA"})
    assert (table.columns, len(rows(table))) == (("en", "fr-CA"), 2)


def test_copies_without_a_card(tmp_path: Path) -> None:
    directory = tmp_path / "maker" / "corpus"
    (directory / "deu-eng" / "test").mkdir(parents=True)
    plain = pa.table({"sourceString": ["Tag", None], "targetString": ["day", "night"], "n": [1, 2]})
    pq.write_table(plain, directory / "deu-eng" / "test" / "0000.parquet")
    columns = {"sourceString": "de", "targetString": "en"}
    table = open_dataset(entry("deu-eng", "test", columns=columns), tmp_path, tmp_path / "cache", {})
    assert rows(table) == [{"de": "Tag", "en": "day"}, {"de": None, "en": "night"}]
    pq.write_table(plain, directory / "devtest.parquet")
    pq.write_table(plain.slice(1), directory / "dev.parquet")
    texts = rows(open_dataset(entry("", "devtest", columns=columns), tmp_path, tmp_path / "cache", {}))
    assert len(texts) == 2


def test_long_rows_make_small_batches(tmp_path: Path) -> None:
    directory = tmp_path / "maker" / "corpus"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"a": ["x" * 1_000_000] * 80, "b": ["y"] * 80}), directory / "train.parquet")
    table = open_dataset(entry("", columns={"a": "de", "b": "en"}), tmp_path, tmp_path / "cache", {})
    assert [batch.num_rows for batch in table.batches] == [20, 20, 20, 20]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": "de-fr"}, "data set maker/corpus: de-fr is none of its configurations; it has de-en, en-fr"),
        ({"config": ""}, "maker/corpus: name a configuration; it has de-en, en-fr"),
        ({"part": "dev"}, "maker/corpus: configuration de-en has no part 'dev'; it has train, test"),
        ({"columns": {"translation.xx": "de"}}, "no field 'translation.xx' in columns; it has translation.de"),
        ({"columns": {"translation": "de"}}, "field 'translation' is struct.*no text; the texts are translation.de"),
        ({"columns": {"translation.de": "de", "translation.en": "de"}}, "several columns are de"),
        ({"where": {"lang": "de"}}, "no field 'lang' in where; it has id, translation.de, translation.en"),
        ({"dataset": ""}, "huggingface takes a dataset and no path"),
        ({"paths": ("a",)}, "files: a: format huggingface takes a dataset and no path"),
    ],
)
def test_wrong_entries(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_dataset(tmp_path / "maker" / "corpus")
    fields = {"split": "train", "format": "huggingface", "dataset": "maker/corpus", "config": "de-en", "part": "train"}
    with pytest.raises(ValueError, match=message):
        open_dataset(FileEntry(**{**fields, **change}), tmp_path, tmp_path / "cache", {})


def test_fields_without_languages(tmp_path: Path) -> None:
    directory = tmp_path / "maker" / "corpus"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"english": ["a"], "non_english": ["b"]}), directory / "train.parquet")
    with pytest.raises(ValueError, match=r"which field is which language\? .* it has english, non_english"):
        open_dataset(entry(""), tmp_path, tmp_path / "cache", {})


def test_damaged_and_empty_files(tmp_path: Path) -> None:
    directory = write_dataset(tmp_path / "maker" / "corpus")
    path = directory / "de-en" / "train-00001-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    table = open_dataset(entry(), tmp_path, tmp_path / "cache", {})
    with pytest.raises(ValueError, match=r"de-en train: cannot be read after row 2500: .*; fetch the file again"):
        list(table.batches)
    nothing = translations("de", "en", 0)
    pq.ParquetWriter(directory / "de-en" / "test-00000-of-00001.parquet", nothing.schema).close()
    with pytest.raises(ValueError, match="maker/corpus de-en test: empty"):
        open_dataset(entry(part="test"), tmp_path, tmp_path / "cache", {})


def test_a_hub_is_asked_for_what_an_entry_needs_and_only_once(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = entry(part="test")
    assert rows(open_dataset(request, tmp_path, tmp_path / "cache", {}, patience=SHORT))[2] == {
        "de": "de 2",
        "en": "en 2",
    }
    names = {path.rpartition(f"{COMMIT}/")[2] for path in hub.requests if "/resolve/" in path}
    assert names == {"README.md", "de-en/test-00000-of-00001.parquet"}
    assert all(str(path).startswith(str(tmp_path)) for path in (tmp_path / "cache").rglob("*.parquet"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert len(rows(open_dataset(request, tmp_path, tmp_path / "cache", {}))) == 3
    with pytest.raises(ValueError, match=r"HF_HUB_OFFLINE is set; where .*`hf download maker/corpus .*put DIR at "):
        open_dataset(entry(), tmp_path, tmp_path / "cache", {})
    assert not hub.requests


def test_a_hub_that_fails_for_a_while(tmp_path: Path, hub: Hub) -> None:
    hub.faults = [503]
    assert len(rows(open_dataset(entry("en-fr"), tmp_path, tmp_path / "cache", {}, patience=SHORT))) == 2


def test_a_hub_that_does_not_answer(tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    open_dataset(entry(), tmp_path, tmp_path / "cache", {}, patience=SHORT)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    # complete files are taken; others are requested in vain
    assert len(rows(open_dataset(entry(), tmp_path, tmp_path / "cache", {}, patience=SHORT))) == 2507
    place = tmp_path / "maker" / "corpus"
    with pytest.raises(ValueError, match=rf"hub at .* does not answer .*tried 2 times.*put DIR at {place}"):
        open_dataset(entry("en-fr"), tmp_path, tmp_path / "cache", {}, patience=SHORT)


def test_requests_that_a_hub_refuses(tmp_path: Path, hub: Hub) -> None:
    def opened(**fields: str) -> Table:
        request = {"split": "train", "format": "huggingface", "dataset": "maker/corpus", "config": "de-en", **fields}
        return open_dataset(FileEntry(**request), tmp_path, tmp_path / "cache", {}, patience=SHORT)

    with pytest.raises(ValueError, match=r"data set maker/nothing is not on the hub at .*; correct the name"):
        opened(dataset="maker/nothing")
    with pytest.raises(ValueError, match="data set maker/corpus has no revision 'v9'"):
        opened(revision="v9")
    with pytest.raises(ValueError, match="configuration de-en has no part 'dev'; it has train, test"):
        opened(part="dev")
    (hub.root / "maker" / "corpus" / "corpus.py").write_text("import os")
    with pytest.raises(ValueError, match=r"is made by a program, corpus.py, which is not run.*refs/convert/parquet"):
        opened()
    hub.gated = True
    with pytest.raises(ValueError, match=r"maker/corpus needs a login: ask for access"):
        opened()


def test_streaming_keeps_a_file_while_it_is_read(tmp_path: Path, hub: Hub) -> None:
    table = open_dataset(entry(streaming=True), tmp_path, tmp_path / "cache", {}, patience=SHORT)
    assert [path.name for path in (tmp_path / "cache").rglob("*.parquet")] == ["train-00000-of-00002.parquet"]
    assert len(rows(table)) == 2507
    assert not list((tmp_path / "cache").rglob("*.parquet"))


def test_a_hub_that_is_gone_while_it_is_streamed_from(tmp_path: Path, hub: Hub) -> None:
    table = open_dataset(entry(streaming=True), tmp_path, tmp_path / "cache", {}, patience=SHORT)
    hub.faults = [418] * 10  # a status for which the client does not try again by itself
    with pytest.raises(ValueError, match=r"de-en train: cannot be read after row 2500: .*train-00001.*; try again, or"):
        rows(table)
    assert not list((tmp_path / "cache").rglob("*.parquet"))


def test_a_user_says_where_files_of_hubs_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "mine")
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, "mine")
        keep_below(tmp_path)
        assert constants.HF_HUB_CACHE == "mine"
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_XET_CACHE", "mine")
    keep_below(tmp_path)
    assert str(tmp_path / "hub") == constants.HF_HUB_CACHE


def test_cards(tmp_path: Path) -> None:
    card = read_card(write_dataset(tmp_path))
    assert (card.licence, card.citation) == ("cc-by-4.0", '@inproceedings{muster-2020,\n    title = "A corpus",\n}')
    assert card.configs["en-fr"] == {"train": ("en-fr/a.parquet", "en-fr/train.parquet")}
    (tmp_path / "README.md").write_text("---\nlicense: other\nlicense_name: wmt\nconfigs:\n- data_dir: x\n---\n")
    card = read_card(tmp_path)
    assert (card.licence, card.configs) == ("other (wmt)", {"default": {"*": ("x/*",)}})
    (tmp_path / "README.md").write_text("---\nlicense: [a\n---\n")
    with pytest.raises(ValueError, match=r"README.md: its header is no YAML"):
        read_card(tmp_path)
    (tmp_path / "README.md").write_text("# no header\n")
    assert read_card(tmp_path).licence == ""
