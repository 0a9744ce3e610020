"""The search for bilingual models: `make baselines`, and the run that finds its work done."""

import csv
import json

from pipeline.dag.status import read_status
from tests.system.place import run

# The second is the tier of the smoke run, whose models are there already.
SEARCH = "baselines.search={pairs: 2, candidates: [{name: brief, train: {max_steps: 3}}, {name: as_it_is}]}"


def test_the_better_candidate_is_found_once_and_its_models_are_those_of_the_run(place, smoke):
    words = (f"'{SEARCH}'", "name=searched", "score.resamples=100")
    process = run([*place.command(*words, target="baselines"), "LANG_PAIRS=de-en tr-en"], timeout=120)
    assert process.returncode == 0, process.stderr
    ran = [line.removesuffix(": running") for line in process.stderr.splitlines() if line.endswith(": running")]
    assert sorted(ran) == ["train candidate brief de-en", "train candidate brief tr-en"]
    assert "bilingual models alone, on this machine" in process.stderr
    assert "time: at most " in process.stderr
    assert "search: brief, as_it_is on de-en, tr-en" in process.stderr
    assert "3 of 4 candidates trained, ETA " in process.stderr
    assert "search: tr-en takes as_it_is; nats per character: brief " in process.stderr
    assert (place.root / "runs" / "searched" / "search.csv").is_file()
    status = read_status(place.root / "runs" / "searched")
    assert {stage.title: stage.state for stage in status.stages} == dict.fromkeys(ran, "done")
    assert (status.state, status.batch.what, status.batch.num_done, status.batch.total) == (
        "done",
        "candidates trained",
        4,
        4,
    )
    header, *lines = [line.split() for line in process.stdout.splitlines()]
    assert header[:3] == ["pair", "rows", "candidate"]
    assert [(line[0], line[2]) for line in lines] == [("de-en", "as_it_is"), ("tr-en", "as_it_is")]

    again = run([*place.command(*words), "LANG_PAIRS=de-en tr-en"], timeout=120)
    assert again.returncode == 0, again.stderr
    ran = [line.removesuffix(": running") for line in again.stderr.splitlines() if line.endswith(": running")]
    assert ran == ["score searched", "report searched"]
    results = place.root / "runs" / "searched"
    with (results / "search.csv").open(newline="") as stream:
        trials = list(csv.DictReader(stream))
    assert [(trial["pair"], trial["candidate"], trial["chosen"]) for trial in trials] == [
        ("de-en", "brief", "0"),
        ("de-en", "as_it_is", "1"),
        ("tr-en", "brief", "0"),
        ("tr-en", "as_it_is", "1"),
    ]
    assert float(trials[0]["nats_per_character"]) > float(trials[1]["nats_per_character"]) > 0.3
    record = json.loads((results / "run.json").read_text(encoding="utf-8"))
    assert record["baseline_search"]["tr-en"] == {"candidate": "as_it_is", "carried_over_from": None}
    with (results / "scores.csv").open(newline="") as stream:
        scores = {(r["pair"], r["system"], r["metric"]): float(r["score"]) for r in csv.DictReader(stream)}
    assert {line[0]: line[-1] for line in lines} == {
        pair: f"{scores[pair, 'bilingual', 'bleu']:.2f}" for pair in ("de-en", "tr-en")
    }
