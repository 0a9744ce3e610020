"""Further test sets: how a user names them, which pairs they have, and what is wrong with them."""

import json
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import load_config
from pipeline.corpus.bitext import read_column
from pipeline.corpus.languages import LangPair, MissingPairError
from pipeline.dag.artifact import Artifact
from pipeline.dag.inventory import Inventory
from pipeline.dag.replacement import check_replacement
from pipeline.dag.status_file import recorded
from pipeline.dag.store import Store
from pipeline.dag.test_rows import further_rows, further_showable, load_corpus, rows_of_corpus
from pipeline.dag.test_sets import KEPT, write_test_scores
from pipeline.decode.config import DecodeConfig
from pipeline.score_config import ScoreConfig
from tests.unit.corpus.sources.file_server import Site, serve
from tests.unit.corpus.sources.test_presets import card, write_opus_100

PAIRS = [LangPair("de", "en"), LangPair("en", "de"), LangPair("ja", "en"), LangPair("fr", "de")]


@pytest.fixture
def flores(tmp_path):
    """A copy of FLORES with three languages."""
    texts = {name: [f"{name} {row}" for row in range(3)] for name in ("deu_Latn", "eng_Latn", "fra_Latn")}
    directory = tmp_path / "corpora" / "mteb" / "flores"
    directory.mkdir(parents=True)
    for part in ("dev", "devtest"):
        pq.write_table(pa.table(texts), directory / f"{part}.parquet")
    return f"flores-200:{tmp_path / 'corpora'}"


@pytest.fixture
def config(tmp_path):
    def load(*test_sets):
        place = [f"runtime.artifacts={tmp_path}/artifacts", f"runtime.runs={tmp_path}/runs"]
        return load_config(["recipes=smoke", f"score.test_sets=[{','.join(test_sets)}]", *place])

    return load


def test_a_preset_a_preset_with_its_files_and_a_directory(tmp_path):
    preset = load_corpus("flores-200")
    assert (preset.manifest, preset.path) == ("data/flores-200/manifest.yaml", "corpora")
    with_files = load_corpus(f"flores-200:{tmp_path}")
    assert (with_files.manifest, with_files.path) == (preset.manifest, str(tmp_path))
    directory = tmp_path / "a b:c"
    directory.mkdir()
    assert (load_corpus(str(directory)).manifest, load_corpus(str(directory)).path) == ("", str(directory))
    with pytest.raises(ValueError, match=r"corpus=flores is neither a directory nor .*; did you mean flores-200"):
        load_corpus("flores:there")
    with pytest.raises(
        ValueError, match=r"^there is no directory; give the one with the files of ntrex, or ntrex alone$"
    ):
        load_corpus("ntrex:there")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "artifacts")


def rows_of(corpus, pairs, store, *, skip_missing=True):
    """Return the names of the pairs that each test set has."""
    test_sets = rows_of_corpus(corpus, pairs, store, corpus="it", advice="take another", skip_missing=skip_missing)
    return {name: [pair.name for pair in rows] for name, rows in test_sets.items()}


def not_tested(caplog):
    return [message for message in caplog.messages if "is not tested" in message]


def test_pairs_that_a_test_set_lacks_are_left_out(config, flores, store, caplog):
    caplog.set_level("INFO")
    (rows,) = further_rows(config("own", flores), [*PAIRS, LangPair("xx", "en")], store).values()
    assert [pair.name for pair in rows] == ["de-en", "en-de", "fr-de"]
    assert read_column(rows[PAIRS[1]].path, "test", "src") == ["eng_Latn 0", "eng_Latn 1", "eng_Latn 2"]
    lacks_ja, lacks_xx = not_tested(caplog)
    assert lacks_ja.startswith("ja-en is not tested on flores-200: data set mteb/flores devtest: no field 'jpn_Jpan'")
    assert lacks_xx == "xx-en is not tested on flores-200: pair 'xx:en' names no two languages; write it as de-en"


def test_a_part_or_a_file_that_a_preset_lacks_is_a_pair_that_it_lacks(tmp_path, store, caplog):
    caplog.set_level("INFO")
    write_opus_100(tmp_path)
    parts = {part: f"de-en/{part}-*" for part in ("train", "validation", "test")}
    card(tmp_path / "Helsinki-NLP" / "opus-100", {"de-en": parts, "en-fr": {"train": "en-fr/train-*"}})
    pairs = [LangPair("de", "en"), LangPair("fr", "en")]
    assert rows_of(load_corpus(f"opus-100:{tmp_path}"), pairs, store) == {"opus-100": ["de-en"]}
    with serve(Site(files={f"/de-en.{code}": b"a\n" for code in ("de", "en")})) as site:
        paths = f"['{site.url}/{{pair}}.{{src}}', '{site.url}/{{pair}}.{{tgt}}']"
        entry = f"{{split: test, format: aligned, path: {paths}}}"
        (tmp_path / "manifest.yaml").write_text(f"name: web\ndefault_target: en\nfiles: [{entry}]\n")
        assert rows_of(load_corpus(str(tmp_path)), pairs, store) == {"web": ["de-en"]}
    no_part, no_file = not_tested(caplog)
    assert no_part.startswith(
        "fr-en is not tested on opus-100: data set Helsinki-NLP/opus-100: configuration en-fr has"
    )
    assert no_file.startswith("fr-en is not tested on web: ")
    assert "answered 404" in no_file


def test_a_pair_that_one_of_several_corpora_lacks_is_tested_on_the_others(flores, tmp_path, store):
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "test.ja-en.tsv").write_text("a\tb\n", encoding="utf-8")
    corpora = replace(load_corpus(flores), add=[str(tmp_path / "news")])
    assert rows_of(corpora, PAIRS, store) == {"flores-200": ["de-en", "en-de", "fr-de"], "news": ["ja-en"]}


def test_a_pair_without_a_complete_row_is_left_out(tmp_path, store, caplog):
    caplog.set_level("INFO")
    rows = "de\ten\tfr\nein Haus\ta house\t\n\ttwo ways\tdeux voies\n"
    (tmp_path / "test.tsv").write_text(rows, encoding="utf-8")
    (tmp_path / "manifest.yaml").write_text(
        "name: news\nfiles: [{split: test, format: multiway_tsv, path: test.tsv}]\n"
    )
    assert rows_of(load_corpus(str(tmp_path)), PAIRS, store) == {"news": ["de-en", "en-de"]}
    assert not_tested(caplog) == ["fr-de is not tested on news: none of its rows has text in both languages"]


def test_a_wrong_entry_without_placeholders_is_an_error(tmp_path, store):
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "test.parquet")
    entry = 'split: test, format: parquet, path: test.parquet, columns: {a: "de", c: "en"}'
    (tmp_path / "manifest.yaml").write_text(f"name: news\nfiles: [{{{entry}}}]\n")
    with pytest.raises(ValueError, match=r"test.parquet: no .*'c'"):
        rows_of(load_corpus(str(tmp_path)), PAIRS, store)


def test_a_pair_that_is_named_must_be_there(flores, store):
    with pytest.raises(MissingPairError, match="no field 'jpn_Jpan'"):
        rows_of(load_corpus(flores), PAIRS, store, skip_missing=False)
    with pytest.raises(
        ValueError, match=r"it has no test set of ja-en; .* no language \(.*'jpn_Jpan'.*\); take another$"
    ):
        rows_of(load_corpus(flores), PAIRS[2:3], store)


def test_the_rows_belong_to_the_run_from_the_beginning(config, flores, tmp_path):
    """So `make remove` does not delete them, or what was fetched for them, during the training."""
    with recorded(tmp_path / "runs" / "mine") as status:
        further_rows(config("own", flores), PAIRS, Store(tmp_path / "artifacts", status))
        inventory = Inventory(tmp_path / "artifacts", tmp_path / "runs")
    published = [path for path in inventory.places(inventory.inputs) if path.suffix != ".partial"]
    assert {path.parent.name for path in published} == {"fetch", "test_set"}
    assert {path.suffix for path in inventory.places(inventory.unused())} <= {".partial"}


def test_a_metric_that_fails_leaves_what_an_earlier_command_has_written(tmp_path):
    (tmp_path / "de-en.jsonl").write_text(json.dumps(dict.fromkeys(("source", "hypothesis", "reference"), "a")) + "\n")
    artifact = Artifact(stage="translate", key="0", path=tmp_path, content="")
    record = {
        **dict.fromkeys(KEPT, ""),
        "name": "mine",
        "config": {},
        "environment": {},
        "languages": {},
        "train_pairs": {"de-en": 1},
        "systems": {"moe": []},
    }
    out = tmp_path / "tests" / "news"
    out.mkdir(parents=True)
    for name in ("scores.csv", "challenge.csv", "run.json"):
        (out / name).write_text("old")
    write = partial(
        write_test_scores,
        *(out, "news", record, {"moe": {PAIRS[0]: artifact}}),
        metrics=["bleu", "comet"],
        resamples=100,
        decode=DecodeConfig(),
    )
    with pytest.raises(ValueError, match=r"score.commands.comet='false' ended with code 1"):
        write(commands={"comet": "false"})
    assert {path.name: path.read_text() for path in out.iterdir()} == dict.fromkeys(
        ("scores.csv", "challenge.csv", "run.json"), "old"
    )
    write(commands={"comet": "sed s/.*/1/"})
    assert not (out / "challenge.csv").exists()
    written = json.loads((out / "run.json").read_text())
    assert (written["test_set"], written["sample_sentences"]) == ("news", False)
    assert ",comet,100.0000," in (out / "scores.csv").read_text()
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    for settings, is_shown in (({}, True), ({"report": {"show": False}}, False)):
        record["config"] = settings
        write(commands={"comet": "sed s/.*/1/"}, show=True)
        assert json.loads((out / "run.json").read_text())["sample_sentences"] is is_shown


def test_the_licence_of_a_test_set_says_whether_a_report_shows_it(config, flores, tmp_path):
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.de-en.tsv").write_text("a\tb\n", encoding="utf-8")
    entry = "{split: test, format: tsv, pair: de-en, path: test.de-en.tsv}"
    (tmp_path / "theirs" / "manifest.yaml").write_text(f"name: theirs\nlicence: CC-BY-NC-4.0\nfiles: [{entry}]\n")
    corpora = [flores, f"{tmp_path}/mine", f"{tmp_path}/theirs"]
    assert further_showable(config("own", "challenge", f"challenge:{flores}", *corpora)) == {"flores-200", "mine"}


@pytest.mark.parametrize(
    ("test_sets", "message"),
    [
        (["own", "nowhere"], r"score.test_sets: nowhere: corpus=nowhere is neither a directory nor a corpus"),
        (
            ["own", "{root}/french"],
            r"score.test_sets: .*french: .*has no test set of de-en.*; its test sets have es, fr; take it out of score",
        ),
        (["own", "{root}/news", "{root}/more/news"], r"has a test set news, as one before it has; name one of them"),
    ],
)
def test_what_cannot_be_tested_is_an_error(config, store, tmp_path, test_sets, message):
    for name, pair in (("french", "fr-es"), ("news", "de-en"), ("more/news", "de-en")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"test.{pair}.tsv").write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        further_rows(config(*(text.format(root=tmp_path) for text in test_sets)), PAIRS, store)


@pytest.mark.parametrize("test_sets", [["ntrex"], [], ["own", "ntrex", "ntrex"]])
def test_own_is_among_the_test_sets_and_nothing_twice(test_sets):
    with pytest.raises(ValueError, match=r"score.test_sets=.* must have own"):
        ScoreConfig(metrics=["bleu"], resamples=100, test_sets=test_sets)


def test_further_test_sets_need_no_other_name(config, tmp_path):
    """The record of a run without them has no such setting, and their run is no other configuration."""
    alone, further = config("own"), config("own", "ntrex")
    assert "test_sets" not in alone.to_json()["score"]
    assert further.to_json()["score"]["test_sets"] == ["own", "ntrex"]
    (tmp_path / "run.json").write_text(json.dumps({"config": alone.to_json(), "pairs": alone.pairs}))
    check_replacement(tmp_path, further)
