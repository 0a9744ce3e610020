"""`make backtranslate` with the smoke run: real German lines get an English source and become a corpus to train on."""

import gzip
import json
import re
import signal
import subprocess
import time
from dataclasses import asdict, replace

import pyarrow.parquet as pq
import pytest
import torch

from pipeline.commands.backtranslate import back_translate, load_backtranslation
from pipeline.config import ROOT, load_config
from pipeline.corpus.config import CorpusConfig, Rules
from pipeline.corpus.funnel import funnel
from pipeline.corpus.manifest import read_manifest
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.store import Store
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.process import translate
from pipeline.decode.job.shards import make_shards
from pipeline.finished_run import FinishedRun
from pipeline.model.fused_attention import SWITCH
from pipeline.stopping import Stopped
from pipeline.tasks import DataConfig
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.encode import EncodedSplit, encode, encoded_counts
from pipeline.vocab.tokenizer import Vocabulary, train_vocabulary
from tests.system.place import Place, run


def sentences(count, column=1):
    """Short sentences of the sample in one language."""
    rows = (ROOT / "data/sample/train.tsv").read_text(encoding="utf-8").split("\n")[1:]
    texts = [row.split("\t")[column] for row in rows if row]
    return [text for text in texts if 20 < len(text) < 90][:count]


def words(text, out, **settings):
    words = {"run": "smoke", "pairs": "[de-en]", "licence": "CC0-1.0", "decode.beam": 1, **settings}
    return [f"text={text}", f"out={out}", *(f"{key}={value}" for key, value in words.items())]


def in_order(texts, lines):
    """Check that texts are some of the lines, in their order, and all but at most a tenth; return how many are missing.

    The smoke run's model is poor: now and then it translates a line by nothing, another one on another processor.
    """
    remaining = iter(lines)
    assert all(text in remaining for text in texts)
    lacking = len(lines) - len(texts)
    assert lacking <= len(lines) // 10
    return lacking


def rows(corpus):
    return pq.read_table(corpus / "train.en-de.parquet").to_pylist()


@pytest.fixture(scope="session")
def backtranslated(place, results, tmp_path_factory):
    """A corpus of 40 lines, between which some cannot be translated, and what the command said."""
    root = tmp_path_factory.mktemp("backtranslated")
    lines = sentences(40)
    faulty = [*lines[:10], "", *lines[10:20], "zu lang " * 300, " \t ", *lines[20:]]
    (root / "mono.de.gz").write_bytes(gzip.compress(("\n".join(faulty) + "\n").encode()))
    settings = [f"TEXT={root}/mono.de.gz", f"OUT={root}/corpus", "LICENCE=CC0-1.0", "CITATION=Somebody, somewhere"]
    command = place.command("decode.beam=1", "decode.batch_tokens=1", target="backtranslate")
    process = run([*command, "NAME=smoke", "LANG_PAIRS=de-en", *settings], timeout=300)
    assert process.returncode == 0, process.stderr
    return root / "corpus", process.stderr


def test_every_line_has_a_row_in_order_and_what_has_none_is_counted(backtranslated):
    corpus, output = backtranslated
    lacking = in_order([row["de"] for row in rows(corpus)], sentences(40))
    assert all(row["en"].strip() for row in rows(corpus))
    assert len({row["en"] for row in rows(corpus)}) > 5
    left_out = f"left out: 2 empty, 1 of more than 192 tokens, {lacking} without a translation"
    assert f"{40 - lacking} of 43 lines translated; {left_out}" in output


def test_the_manifest_says_where_it_comes_from(backtranslated, results):
    corpus, _ = backtranslated
    manifest = read_manifest(corpus)
    record = json.loads((results / "run.json").read_text(encoding="utf-8"))
    assert (manifest.name, manifest.licence) == ("backtranslated-smoke", "CC0-1.0")
    for part in (
        "Somebody, somewhere",
        "run smoke",
        record["commit"],
        record["systems"]["moe"][0]["artifacts"]["model"],
    ):
        assert part in manifest.citation
    (entry,) = manifest.files
    assert (entry.tag, entry.rows, entry.pair.name, entry.split) == ("bt", len(rows(corpus)), "en-de", "train")


class AskedToStop:
    """A stop that is asked for after so many batches."""

    def __init__(self, batches):
        self.left = batches

    def __bool__(self):
        self.left -= 1
        return self.left < 0


@pytest.fixture
def process(monkeypatch):
    """Does in this process what one process of a job does, and leaves no trace of it."""
    threads, precision = torch.get_num_threads(), SWITCH.fp32_precision

    def work(job, rank, world, stop=False):
        settings = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "DS_ACCELERATOR": "cpu"}
        for name, value in settings.items():
            monkeypatch.setenv(name, str(value))
        translate(asdict(job), stop)

    yield work
    torch.set_num_threads(threads)
    SWITCH.fp32_precision = precision


def test_interrupted_and_resumed_by_other_processes_equals_uninterrupted(place, results, process, tmp_path):
    finished = FinishedRun.open("smoke", runs=results.parent, store=Store(place.root / "artifacts"))
    lines = [*sentences(20), "", *sentences(40)[20:]]

    def job(name):
        shards = make_shards(tmp_path / name, lines, target="en", rows=15)
        return shards, TranslateJob(
            title="lines",
            rounds=[[shard] for shard in shards if not shard.gather()],
            max_source_tokens=finished.max_source_tokens,
            long="skip",
            vocabulary=str(finished.vocabulary.path),
            checkpoints=str(finished.model.path / "checkpoints"),
            log=str(tmp_path / name / "log"),
            decode=replace(finished.decode, beam=1, batch_tokens=60),
            runtime=replace(load_config([]).runtime, device="cpu", decode_experts="replicated"),
        )

    shards, whole = job("whole")
    process(whole, rank=0, world=1)
    assert all(shard.gather() for shard in shards)
    expected = [shard.records() for shard in shards]
    assert expected[1][20] == {"row": 20, "skipped": "empty"}
    assert len({record["text"] for records in expected for record in records.values() if "text" in record}) > 5

    parts, first = job("parts")
    for rank, batches in enumerate((4, 2)):
        with pytest.raises(Stopped):
            process(first, rank=rank, world=2, stop=AskedToStop(batches))
    with parts[0].part(1).open("a", encoding="utf-8") as file:
        file.write('{"row": 3, "text": "half a li')
    _, second = job("parts")
    assert second.rounds == [[shard] for shard in parts[1:]]  # the first was done
    assert 0 < sum(len(shard.records()) for shard in parts[1:]) < 26
    for rank in range(3):
        process(second, rank=rank, world=3)
    assert all(shard.gather() for shard in parts)
    assert [shard.records() for shard in parts] == expected


def test_a_signal_stops_the_command_and_the_same_command_goes_on(place, backtranslated, tmp_path):
    corpus, _ = backtranslated
    other = Place(tmp_path)
    for stage in ("train", "vocab"):
        (tmp_path / "artifacts").mkdir(exist_ok=True)
        (tmp_path / "artifacts" / stage).symlink_to(place.root / "artifacts" / stage)
    (tmp_path / "runs").symlink_to(place.root / "runs")
    (tmp_path / "mono.de").write_text("\n".join(sentences(40)), encoding="utf-8")
    command = other.python(
        "backtranslate", *words(tmp_path / "mono.de", tmp_path / "corpus", **{"decode.batch_tokens": 1})
    )
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while not any(path.stat().st_size for path in tmp_path.glob("artifacts/backtranslate/*.partial/work/*.rank-*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 75, errors
    parts = list(tmp_path.glob("artifacts/backtranslate/*.partial/work/*.rank-*"))
    assert 0 < sum(len(part.read_text(encoding="utf-8").splitlines()) for part in parts) < 40
    assert not (tmp_path / "corpus").exists()
    with parts[0].open("a", encoding="utf-8") as part:
        part.write('{"row": 3, "text": "half a li')
    again = run([*command, "runtime.processes=1", "runtime.ep=1"], timeout=120)
    assert again.returncode == 0, again.stderr
    assert "resuming what was interrupted" in again.stderr
    assert rows(tmp_path / "corpus") == rows(corpus)


def test_what_is_done_is_not_done_again(place, backtranslated):
    corpus, _ = backtranslated
    before = (corpus / "manifest.yaml").read_text(encoding="utf-8")
    text = corpus.parent / "mono.de.gz"
    assert back_translate(
        load_backtranslation([*words(text, corpus, citation="'Somebody, somewhere'"), *place.directories])
    )
    assert (corpus / "manifest.yaml").read_text(encoding="utf-8") == before


def test_as_a_source_of_another_corpus_its_rows_have_the_tag(backtranslated, tmp_path):
    corpus, _ = backtranslated
    config = CorpusConfig(
        path="data/sample",
        add=[str(corpus)],
        rules=Rules(language=None, min_script=None, min_digit_overlap=None, max_end_difference=None),
    )
    store, data = Store(tmp_path), DataConfig()
    prepared = prepare_corpus(config, ["en-de"], store, data)
    (pair,) = prepared.pairs
    cleaned = clean(config, store, prepared, pair, data).path
    sources = funnel(cleaned)["sources"]
    assert [(source["name"], source["tag"]) for source in sources] == [("sample", ""), ("backtranslated-smoke", "bt")]
    assert (sources[1]["licence"], sources[1]["read"]) == ("CC0-1.0", len(rows(corpus)))
    kept = sources[1]["kept"]
    assert kept > 20
    vocabulary, out = tmp_path / "vocabulary", tmp_path / "encoded"
    vocabulary.mkdir()
    out.mkdir()
    sizes = VocabConfig(shared=False, source_size=800, target_size=800, sample_lines=1000)
    train_vocabulary(sizes, {pair: cleaned}, vocabulary)
    encode(vocabulary, cleaned, pair, max_source_tokens=500, max_target_tokens=500, out=out)
    expected = [("sample", "", sources[0]["kept"]), ("backtranslated-smoke", "bt", kept)]
    assert [tuple(source.values()) for source in encoded_counts(out)["sources"]] == expected
    loaded, split = Vocabulary.load(vocabulary), EncodedSplit.open(out, "train")
    starts = [split.source(row)[:2].tolist() for row in range(len(split))]
    language, tag = loaded.tag("de"), loaded.source_tag("bt")
    assert all(first == language for first, _ in starts)
    assert [second == tag for _, second in starts] == [False] * sources[0]["kept"] + [True] * kept


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run": "smok"}, "holds no run.json, so there is no finished run; did you mean smoke?"),
        ({"pairs": "[en-de]"}, "run smoke does not translate en-de, but de-en, tr-en; train one that does"),
        ({"pairs": "[fr-en]"}, "run smoke, which translates de-en, tr-en: pair 'fr-en': the corpus has no 'fr'"),
        ({"pairs": "[de-en,tr-en]"}, "name each once, all from the one language that the text is in"),
        ({"text": "nowhere.de"}, "nowhere.de is no file"),
        ({"text": "wrong.de"}, "wrong.de: line 2: byte 4 (0xff) is not UTF-8"),
        ({"text": "nothing.de"}, "none of its 0 lines has a translation"),
        ({"licence": ""}, "LICENCE is empty; give that of the text"),
        ({"name": "'my own'"}, "name='my own': a source is named by letters"),
        ({"decode.beam": 0}, "decode.beam=0 must be at least 1"),
        ({"decode.beem": 2}, "decode.beem does not exist; did you mean decode.beam"),
        ({"out": "taken"}, "taken holds notes.txt, which this command did not make; choose another directory"),
    ],
)
def test_mistakes_are_named_before_anything_is_translated(place, results, tmp_path, settings, message):
    (tmp_path / "mono.de").write_text("Ein Satz\n", encoding="utf-8")
    (tmp_path / "wrong.de").write_bytes(b"gut\n\xff\xfe\n")
    (tmp_path / "nothing.de").write_bytes(b"")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    text, out = (tmp_path / settings.get(name, default) for name, default in (("text", "mono.de"), ("out", "corpus")))
    settings = {key: value for key, value in settings.items() if key not in ("text", "out")}
    with pytest.raises(ValueError, match=re.escape(message)):
        back_translate(load_backtranslation([*words(text, out, **settings), *place.directories]))
    assert not (tmp_path / "corpus").exists()
    assert (tmp_path / "taken" / "notes.txt").read_text() == "mine"


def test_a_run_that_cannot_be_found_whole_is_named(place, results, tmp_path):
    record = json.loads((results / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "mono.de").write_text("Ein Satz\n", encoding="utf-8")
    (tmp_path / "runs" / "smoke").mkdir(parents=True)
    settings = [*words(tmp_path / "mono.de", tmp_path / "corpus"), f"runtime.runs={tmp_path}/runs"]

    def attempt(*more):
        (tmp_path / "runs" / "smoke" / "run.json").write_text(json.dumps(record), encoding="utf-8")
        return back_translate(load_backtranslation([*settings, *more]))

    with pytest.raises(ValueError, match=rf"NAME=smoke: artifact train/.* is not in .*{place.root}/artifacts"):
        attempt(f"runtime.artifacts={tmp_path}")
    del record["systems"]["moe"][0]["artifacts"]
    with pytest.raises(ValueError, match="does not say which artifacts its model is in, as an older version"):
        attempt(f"runtime.artifacts={place.root}/artifacts")
