"""A run of 0.2.0, kept in tests/fixtures/run-0.2.0: interrupted, it continues; finished, it translates.

CHANGELOG.md promises this to every 0.2.x, and an error to what another minor version has left. The next minor version
replaces the fixture by a run of its own first release (README.md beside it says how).
"""

import json
import shutil
import subprocess

import pytest

from pipeline.config import ROOT
from tests.system.place import Place, run

FIXTURE = ROOT / "tests" / "fixtures" / "run-0.2.0"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text(encoding="utf-8"))
(INTERRUPTED,) = (FIXTURE / "interrupted").iterdir()
LAST_STEP = 121  # of the checkpoint that the interrupted run has left
SETTINGS = [  # as README.md beside the run has them
    "name=old",
    "pairs=[tr-en]",
    "baselines.tiers=[]",
    "vocab=shared",
    "vocab.source_size=400",
    "vocab.target_size=400",
    "batch.shapes=[{rows:8,source:48,target:48}]",
    "model.dim=12",
    "model.ffn_dim=24",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=2",
    "model.moe.num_experts=2",
    "model.moe.expert_dim=12",
    "train.max_tokens=0",
    "train.max_steps=160",
    "train.warmup_steps=20",
    "train.learning_rate=0.03",
    "train.validate_every=160",
    "train.log_every=5",
    "decode.beam=1",
    "score.resamples=100",
    "runtime.processes=1",
    "runtime.ep=1",
]


@pytest.fixture
def place(tmp_path):
    shutil.copytree(FIXTURE / "corpus", tmp_path / "corpus")
    return Place(tmp_path)


@pytest.fixture
def interrupted(place):
    """The directory in which training was stopped."""
    return shutil.copytree(INTERRUPTED, place.root / "artifacts" / "train" / INTERRUPTED.name)


def go_on(place):
    return run(place.direct(*SETTINGS, f"corpus={place.root}/corpus"), timeout=600)


def test_an_interrupted_run_continues(place, interrupted):
    """The data stages make the same rows of tokens anew, so training has its key, and finds position and optimizer."""
    process = go_on(place)
    assert process.returncode == 0, process.stderr
    trained = interrupted.with_suffix("")
    assert [path for path in trained.parent.iterdir() if path.is_dir()] == [trained]
    assert "train moe: resuming what was interrupted" in process.stderr
    lines = (trained / "log" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["step"] > LAST_STEP]
    losses = {str(record["step"]): record["cross_entropy"] for record in records if record["event"] == "train"}
    (validation,) = [record["cross_entropy"] for record in records if record["event"] == "validation"]
    # Forty steps of float32, on another processor or in another order: rounding grows to 1e-4 or so. A position, moment
    # or seed that is lost moves the first of these losses by a hundredth and more.
    assert losses == pytest.approx(EXPECTED["losses"], rel=2e-3)
    assert validation == pytest.approx(EXPECTED["validation"], rel=2e-3)


def test_a_finished_run_translates_as_it_did(place):
    shutil.copytree(FIXTURE / "finished", place.root / "artifacts")
    (place.root / "runs" / "old").mkdir(parents=True)
    shutil.copy(FIXTURE / "run.json", place.root / "runs" / "old")
    sources, translations = zip(*EXPECTED["translations"].items(), strict=True)
    command = place.python("translate", "run=old", "pair=tr-en", "long=whole")  # as test sets are translated
    process = subprocess.run(command, cwd=ROOT, input="\n".join(sources), capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    # Of all choices between two tokens the closest is 4e-3 apart, float32 1e-6 off: no rounding changes one.
    assert process.stdout.splitlines() == list(translations)


def test_a_checkpoint_of_another_minor_version_is_refused_by_an_error_that_says_so(place, interrupted):
    """That of 0.1.0 has no version of the stream which its position is of."""
    (state,) = (interrupted / "checkpoints").glob("step-*/state.json")
    content = json.loads(state.read_text(encoding="utf-8"))
    assert content["mixture"].pop("stream") == 2
    state.write_text(json.dumps(content), encoding="utf-8")
    process = go_on(place)
    assert process.returncode == 1
    assert "the checkpoint's position in the data is of version 1, this program reads 2" in process.stderr
    assert (
        "go on with the version that wrote it, or start anew from its weights by train.initialize_from"
        in process.stderr
    )
    assert "Traceback" not in process.stderr
    assert state.exists(), "a run of the other version can continue it"
