"""The mixture in training: phases begin at their exact steps, and processes hardly wait for batches."""

import json
from dataclasses import asdict, replace
from statistics import mean

import pytest

from pipeline.batch.mixture_config import MixtureConfig, PairGroup
from pipeline.config import load_config
from pipeline.jobs.launch import launch
from tests.parallel.conftest import EVERY, Outcome, make_job


def run(job):
    processes = job.runtime.processes
    launch("pipeline.train", asdict(job), directory=job.log, processes=processes, threads=1, title=job.title)
    return Outcome(job.log.parent)


def test_a_curriculum_goes_on_at_its_step_on_another_number_of_processes(prepared, tmp_path):
    """Turkish comes from step 4 on, Japanese until step 5. The run stops after step 3 and resumes on one process."""
    mixture = MixtureConfig(
        temperature=2.0,
        groups={
            "late": PairGroup(pairs=["tr-en"], from_step=4, share=0.5),
            "early": PairGroup(pairs=["ja-*"], until_step=6),
        },
    )
    outcomes = []
    for parts in ([(2, 3), (1, 7)], [(1, 7)]):
        for processes, steps in parts:
            job = make_job(prepared, tmp_path / str(len(parts)), processes=processes, ep=1, max_steps=steps)
            outcomes.append(run(replace(job, batch=replace(job.batch, mixture=mixture))))
    resumed, straight = outcomes[1].records("train"), outcomes[2].records("train")
    for records in (resumed, straight):
        pairs = [sorted(record["pairs"]) for record in records]
        assert pairs == [["ja-en"]] * 3 + [["ja-en", "tr-en"]] * 2 + [["tr-en"]] * 2
    assert [r["target_tokens"] for r in resumed] == [r["target_tokens"] for r in straight]
    table = json.loads((outcomes[2].directory / "log" / "mixture.json").read_text())
    assert [phase["from_step"] for phase in table] == [1, 4, 6]
    assert [source["pair"] for source in table[2]["sources"]] == ["tr-en"]


def test_changed_rows_are_the_same_on_another_number_of_processes_and_after_an_interruption(prepared, tmp_path):
    """A run on two processes, and its first three steps continued on one, train on the same rows and count them."""

    def augmented(processes, out):
        job = make_job(prepared, out, processes=processes, ep=1, max_steps=6, checkpoints=EVERY)
        return run(replace(job, batch=replace(job.batch, augment={"upper": 0.2, "merged": 0.2, "subwords": 0.2})))

    straight = augmented(2, tmp_path / "straight")
    first = straight.until(3, tmp_path)
    resumed = augmented(1, first.directory)
    for actual, expected in zip(resumed.records("train"), straight.records("train"), strict=True):
        assert actual["target_tokens"] == expected["target_tokens"]
        assert actual["cross_entropy"] == pytest.approx(expected["cross_entropy"], rel=1e-4), actual["step"]
    counts = [json.loads((outcome.directory / "log" / "ledger.json").read_text()) for outcome in (straight, resumed)]
    assert counts[0]["augmented"] == counts[1]["augmented"]
    assert min(kind["changed"] for kind in counts[0]["augmented"].values()) > 0


@pytest.mark.quiet
def test_waiting_for_batches_is_a_fiftieth_of_training_at_most(prepared, tmp_path):
    """The model and batches are those of the demo. Packing, drawing and assembling happen between two steps."""
    config = load_config(["recipes=demo", "train.max_steps=48", "train.validate_every=100", "train.log_every=1"])
    job = make_job(prepared, tmp_path, processes=1, ep=1)
    runtime = replace(job.runtime, threads=1)
    shapes = [replace(config.batch.shapes[0], target=64)]  # the longest target of the prepared pairs
    batch = replace(config.batch, shapes=shapes)
    outcome = run(replace(job, model=config.model, batch=batch, train=config.train, runtime=runtime))
    waited = [record["data_wait"] for record in outcome.records("train")]
    assert len(waited) == 48  # three windows
    assert mean(waited[1:]) < 0.02
