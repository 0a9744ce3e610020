"""Challenge sets: their rows, their names in the settings, and the scores that take the place of the others."""

import json

import pyarrow as pa
import pytest

from eval.records.challenge import KINDS, PLAIN, load_challenge
from pipeline.config import load_config
from pipeline.corpus.bitext import SCHEMA, read_column, write_bitext
from pipeline.corpus.languages import LangPair
from pipeline.corpus.modifiers import MODIFIERS
from pipeline.dag import challenge
from pipeline.dag.artifact import Artifact
from pipeline.dag.challenge import challenge_rows, is_challenge, own_challenge
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.dag.test_rows import further_rows
from pipeline.dag.test_sets import KEPT, write_test_scores
from pipeline.decode.config import DecodeConfig

PAIR = LangPair("de", "en")
ROWS = [("Hannover ist groß.", "Hannover is large."), ("Ja?", "Yes?"), ("Wir gehen heim.", "We go home.")]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "artifacts")


@pytest.fixture
def rows(store):
    arrays = [pa.array(side, pa.string()) for side in zip(*ROWS, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return store.get(
        Stage(name="test_set", version=1, config={}, run=lambda out: write_bitext(out / "test.arrow", [batch]))
    )


def lines_of(artifact):
    """Return source, target, kind and plain line of each line."""
    marks = json.loads((artifact.path / challenge.KINDS_FILE).read_text())
    texts = zip(*(read_column(artifact.path, "test", side) for side in ("src", "tgt")), strict=True)
    return [(*pair, mark["kind"], mark["plain_line"]) for pair, mark in zip(texts, marks, strict=True)]


def test_every_kind_that_applies_has_a_line_and_the_plain_ones_come_first(rows, store):
    made_rows = challenge_rows({PAIR: rows}, store)
    assert is_challenge(made_rows)
    assert not is_challenge({PAIR: rows})
    lines = lines_of(made_rows[PAIR])
    assert lines[:3] == [(*row, PLAIN, number) for number, row in enumerate(ROWS, start=1)]
    assert list(dict.fromkeys(kind for *_, kind, _ in lines)) == [PLAIN, *MODIFIERS]
    assert [number for *_, kind, number in lines if kind == "full_stop"] == [1, 3]
    assert ("HANNOVER IST GROSS.", "HANNOVER IS LARGE.", "upper", 1) in lines
    assert ("Hannover", "Hannover", "word", 1) in lines


def test_large_test_sets_are_thinned(rows, store, monkeypatch):
    monkeypatch.setattr(challenge, "MOST_LINES", 2)
    monkeypatch.setattr(challenge, "MOST_ALONE", 1)
    lines = lines_of(challenge_rows({PAIR: rows}, store)[PAIR])
    assert [source for source, _, kind, _ in lines if kind == PLAIN] == [ROWS[0][0], ROWS[2][0]]
    assert [number for *_, kind, number in lines if kind == "url"] == [1]


def test_reports_know_every_kind():
    assert list(KINDS) == list(MODIFIERS)


def config(tmp_path, *test_sets):
    place = [f"runtime.artifacts={tmp_path}/artifacts", f"runtime.runs={tmp_path}/runs"]
    return load_config(["recipes=smoke", f"score.test_sets=[{','.join(test_sets)}]", *place])


def test_the_settings_name_the_set_of_the_run_and_that_of_a_further_test_set(tmp_path, rows, store):
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / "test.de-en.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in ROWS), encoding="utf-8")
    assert own_challenge(config(tmp_path, "own"), {PAIR: rows}, store) == {}
    assert list(own_challenge(config(tmp_path, "own", "challenge"), {PAIR: rows}, store)) == ["challenge"]
    settings = config(tmp_path, "own", f"{tmp_path}/news", f"challenge:{tmp_path}/news", "challenge")
    test_sets = further_rows(settings, [PAIR], store)
    assert {name: is_challenge(of_name) for name, of_name in test_sets.items()} == {
        "news": False,
        "challenge-news": True,
    }
    assert lines_of(test_sets["challenge-news"][PAIR]) == lines_of(challenge_rows({PAIR: rows}, store)[PAIR])
    with pytest.raises(ValueError, match=r"score.test_sets: challenge:ntrexx: corpus=ntrexx is neither a directory"):
        further_rows(config(tmp_path, "own", "challenge:ntrexx"), [PAIR], store)


def test_a_corpus_cannot_take_the_name_of_the_set_of_the_run(tmp_path, store):
    (tmp_path / "challenge").mkdir()
    (tmp_path / "challenge" / "test.de-en.tsv").write_text("a\tb\n", encoding="utf-8")
    settings = config(tmp_path, "own", "challenge", str(tmp_path / "challenge"))
    with pytest.raises(ValueError, match="has a test set challenge, as the run has; leave one of them out"):
        further_rows(settings, [PAIR], store)


def test_translations_get_their_kinds_and_challenge_csv(tmp_path, rows, store):
    made_rows = challenge_rows({PAIR: rows}, store)
    lines = lines_of(made_rows[PAIR])
    path = tmp_path / "translated"
    path.mkdir()
    texts = [{"source": source, "hypothesis": target, "reference": target} for source, target, *_ in lines]
    (path / "de-en.jsonl").write_text("".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts))
    translations = {"moe": {PAIR: Artifact(stage="translate", key="0", path=path, content="")}}
    record = {**dict.fromkeys(KEPT, ""), "name": "r", "config": {}, "languages": {}, "train_pairs": {"de-en": 1}}
    out = tmp_path / "challenge"
    options = {"metrics": ["bleu"], "resamples": 100, "decode": DecodeConfig(), "challenge": made_rows}
    write_test_scores(out, "challenge", {**record, "systems": {"moe": []}}, translations, **options)
    assert {(row.kind, row.loss) for row in load_challenge(out)} == {(kind, 0.0) for kind in MODIFIERS}
    assert sorted(file.name for file in out.iterdir()) == ["challenge.csv", "run.json", "translations"]
