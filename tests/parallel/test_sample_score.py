"""Validations that translate: the scores of the same sentences on any topology, and what follows from them."""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from sacrebleu.metrics import CHRF

from pipeline.corpus.bitext import read_column
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.decode.text.translator import Line, Translator
from pipeline.engine.checkpoint.weights import read_state
from pipeline.jobs.launch import JobFailed, launch
from pipeline.train.config import CheckpointConfig
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import make_job, step_name

LINES, STEPS = 12, 24
SETTINGS = {
    "max_steps": STEPS,
    "learning_rate": 5e-3,
    "ema": 0.5,
    "validate_every": 8,
    "validate_metric": "chrf++",
    "validate_lines": LINES,
    "checkpoints": CheckpointConfig(every_n=8),
}


@pytest.fixture(scope="module")
def one(run_job):
    return run_job(processes=1, ep=1, **SETTINGS)


@pytest.fixture(scope="module")
def two(run_job):
    return run_job(processes=2, ep=2, **SETTINGS)


def test_the_score_is_that_of_the_checkpoint_on_evenly_spaced_sentences(prepared, one):
    """The reference translates the cleaned text, and scores by sacreBLEU against the cleaned text, with the average."""
    vocabulary = Vocabulary.load(Path(prepared.vocabulary))
    record = max(one.records("validation"), key=lambda record: (record["score"], -record["cross_entropy"]))
    assert (record["metric"], [*record["scores"]]) == ("chrf++", prepared.pairs)
    model = load_model(one.directory / "checkpoints", vocabulary, longest=96, config=DecodeConfig(beam=1), device="cpu")
    translator = Translator(model, vocabulary, DecodeConfig(beam=1), max_source_tokens=96)
    for pair, bitext, score in zip(prepared.pairs, prepared.bitexts, record["scores"].values(), strict=True):
        sources, references = ([*read_column(Path(bitext), "dev", side)] for side in ("src", "tgt"))
        target = pair.split("-")[1]
        tokens = zip(vocabulary.encode_source(sources, target), vocabulary.encode_target(references), strict=True)
        whole = [row for row, (source, text) in enumerate(tokens) if len(source) < 96 and len(text) < 64]
        rows = [whole[math.floor((number + 0.5) * len(whole) / LINES)] for number in range(LINES)]
        lines = [Line(text=sources[row], target=target) for row in rows]
        texts = dict(translator.translate(lines))
        expected = CHRF(word_order=2).corpus_score(
            [texts[number].text for number in range(LINES)], [[references[row] for row in rows]]
        )
        assert score == pytest.approx(expected.score, abs=1e-9), pair
        assert score > 1
    assert record["score"] == pytest.approx(sum(record["scores"].values()) / 2)


def test_processes_that_share_experts_find_the_scores_of_one(one, two, run_job):
    """float32 sums in another order may turn a near-tie of two tokens, in few of the sentences."""
    apart = run_job(processes=2, ep=1, **{**SETTINGS, "max_steps": 8})
    for outcome in (two, apart):
        records = outcome.records("validation")
        assert records
        for actual, expected in zip(records, one.records("validation")[: len(records)], strict=True):
            assert actual["scores"] == pytest.approx(expected["scores"], abs=0.3)
            assert actual["cross_entropy"] == pytest.approx(expected["cross_entropy"], rel=1e-3)


def test_the_best_checkpoint_is_the_one_with_the_best_score(one):
    scores = {record["step"]: record["score"] for record in one.records("validation")}
    losses = {record["step"]: record["cross_entropy"] for record in one.records("validation")}
    best = max(scores, key=lambda step: (scores[step], -losses[step]))
    root = one.checkpoint().parent
    assert json.loads((root / "best.json").read_text())["best"] == step_name(best)
    for step, score in scores.items():
        assert read_state(root / step_name(step))["validation_score"] == score
    ledger = json.loads((one.directory / "log" / "ledger.json").read_text())
    assert (ledger["best_step"], ledger["validation_metric"], ledger["validation_score"]) == (
        *(best, "chrf++", scores[best]),
    )
    assert ledger["validation_loss"] == losses[best]


def test_a_resumed_run_has_the_same_scores(run_job, two, tmp_path):
    half = two.until(8, tmp_path)
    resumed = run_job(processes=2, ep=2, into=half, **SETTINGS)
    times = ("translation_seconds", "seconds")
    records = [
        [{key: value for key, value in record.items() if key not in times} for record in outcome.records("validation")]
        for outcome in (resumed, two)
    ]
    assert records[0] == records[1]
    progress = [read_state(outcome.checkpoint())["progress"] for outcome in (resumed, two)]
    assert progress[0]["best_score"] == progress[1]["best_score"] > 0


def test_translating_changes_no_step(run_job, one):
    plain = {key: value for key, value in SETTINGS.items() if not key.startswith("validate_")}
    outcome = run_job(processes=1, ep=1, **{**plain, "validate_every": 8, "max_steps": 12})
    records = outcome.records("train")
    assert len(records) == 12
    for actual, expected in zip(one.records("train")[:12], records, strict=True):
        assert actual["cross_entropy"] == expected["cross_entropy"]
    assert "score" not in outcome.records("validation")[0]
    assert "validation_score" not in read_state(outcome.checkpoint())


PROGRAM = """
import json, sys
lines = [line.rstrip(chr(10)).split(chr(9)) for line in sys.stdin]
with open(sys.argv[1], "a", encoding="utf-8") as file:
    print(json.dumps(lines), file=file)
for number, (source, translation, reference) in enumerate(lines):
    print(number / 100)
"""


def test_a_command_scores_all_translations_in_order(prepared, run_job, tmp_path):
    """The command gives the n-th sentence n / 100, so the pairs have means of 5.5 and 17.5 with COMET's factor."""
    (tmp_path / "metric.py").write_text(PROGRAM)
    received = tmp_path / "received"
    command = f"{sys.executable} {tmp_path / 'metric.py'} {received}"
    settings = {**SETTINGS, "validate_metric": "comet", "validate_command": command, "max_steps": 8}
    outcome = run_job(processes=2, ep=2, **settings)
    (record,) = outcome.records("validation")
    assert [*record["scores"].values()] == pytest.approx([5.5, 17.5])
    (lines,) = map(json.loads, received.read_text(encoding="utf-8").splitlines())
    for pair, bitext in enumerate(prepared.bitexts):
        sources, references = ([*read_column(Path(bitext), "dev", side)] for side in ("src", "tgt"))
        sample = lines[pair * LINES : (pair + 1) * LINES]
        rows = [references.index(reference) for _, _, reference in sample]
        assert rows == sorted(rows)
        same = [sources[row] == source for row, (source, _, _) in zip(rows, sample, strict=True)]
        assert sum(same) > LINES // 2  # the vocabulary folds some characters of sources


def test_a_command_that_fails_ends_the_job_with_its_message(run_job, tmp_path):
    settings = {"validate_metric": "comet", "validate_command": "false", "validate_every": 1}
    with pytest.raises(JobFailed, match=r"train\.validate_command=.false. ended with code 1"):
        run_job(processes=2, ep=2, max_steps=2, **settings)


def test_a_process_that_fails_while_it_translates_ends_the_job(prepared, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    job = make_job(prepared, tmp_path, processes=2, ep=2, **{**SETTINGS, "validate_every": 1, "max_steps": 2})
    options = {"directory": tmp_path / "log", "processes": 2, "threads": 1, "title": "fails"}
    with pytest.raises(JobFailed, match="broken on purpose"):
        launch("tests.parallel.failing_translation_worker", asdict(job), **options)
