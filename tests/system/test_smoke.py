"""The main job, as a user starts it: `make train RECIPE=smoke`, again, changed, interrupted, and with bad input."""

import csv
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from itertools import product

import pytest
import sacrebleu

from pipeline.config import ROOT
from pipeline.dag.status import read_status
from tests.clocks import childrens_seconds
from tests.parallel.test_resume import children
from tests.system.place import Place, run


def scores(results):
    with (results / "scores.csv").open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_every_result_is_there(results):
    expected = {
        "summary.md",
        "scores.csv",
        "significance.csv",
        "macro.csv",
        "trendline.png",
        "trendline.svg",
        "bleu_vs_resource.png",
        "loss_time.png",
        "sweep.csv",
        "report.html",
        "metrics.jsonl",
        "run.json",
        "routing.json",
        "specialisation.json",
        "status.json",
    }
    assert expected <= {path.name for path in results.iterdir()}


def test_every_file_is_on_the_page_of_files(results):
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    names = {f"{path.stem}.png" if path.suffix == ".svg" else path.name for path in results.iterdir()}
    assert {name for name in names if f"`{name}`" not in text and f"`{name}/`" not in text} == set()


def test_make_status_says_that_it_is_done(place, results):
    output = run([*place.command(target="status"), "NAME=smoke"])
    assert output.returncode == 0, output.stderr
    assert output.stdout.splitlines()[1].split()[:2] == ["smoke", "done"]


def test_scores_have_their_columns_and_rows(results):
    rows = scores(results)
    assert list(rows[0]) == [
        "pair",
        "system",
        "train_pairs",
        "metric",
        "score",
        "ci_low",
        "ci_high",
        "n_test",
        "signature",
    ]
    scored = {(row["pair"], row["system"], row["metric"]) for row in rows}
    assert scored == {(p, s, m) for p in ("de-en", "tr-en") for s in ("moe", "bilingual") for m in ("bleu", "chrf++")}
    for row in rows:
        assert float(row["ci_low"]) <= float(row["score"]) <= float(row["ci_high"])
        assert (row["n_test"], row["train_pairs"]) == ("300", {"de-en": "5985", "tr-en": "749"}[row["pair"]])
        assert "version:" in row["signature"]


def test_the_summary_has_the_scores_and_the_time_of_the_command(results):
    """Every number as in scores.csv and significance.csv, to the tenth that it shows."""
    lines = (results / "summary.md").read_text(encoding="utf-8").splitlines()
    table, line = lines[: lines.index("")], lines[-1]
    bleu = {(row["pair"], row["system"]): row["score"] for row in scores(results) if row["metric"] == "bleu"}
    with (results / "significance.csv").open(encoding="utf-8") as stream:
        gains = {row["pair"]: row for row in csv.DictReader(stream) if row["metric"] == "bleu"}
    for row, pair, count in zip(table[2:], ("de-en", "tr-en"), ("5,985", "749"), strict=True):
        assert row.split(" | ")[:2] == [f"| {pair}", count]
        output = [float(number.replace("−", "-")) for number in re.findall(r"[+−]?\d+\.\d", row)]
        gain = (gains[pair][column] for column in ("delta", "ci_low", "ci_high"))
        exact = [float(text) for text in (bleu[pair, "moe"], bleu[pair, "bilingual"], *gain)]
        assert output == pytest.approx(exact, abs=0.0501)  # half of the last digit, and the fourth decimal of the CSV
    record = json.loads((results / "run.json").read_text(encoding="utf-8"))
    assert re.match(r"(\d+ min )?\d+ s for the whole command; ", line)
    assert f"; {record['environment']['cpu']}, {os.cpu_count()} core" in line
    assert f"; commit {record['commit']}; {record['created'][:10]}." in line


def de_en_bleu(results, side):
    lines = (results / "translations" / "moe" / "de-en.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return sacrebleu.corpus_bleu([row[side] for row in rows], [[row["reference"] for row in rows]]).score


def test_the_reported_score_is_that_of_the_translations(results):
    reported = next(r for r in scores(results) if (r["pair"], r["system"], r["metric"]) == ("de-en", "moe", "bleu"))
    assert float(reported["score"]) == pytest.approx(de_en_bleu(results, "hypothesis"), abs=1e-3)


def test_the_recipe_as_it_is_learns_more_than_to_copy(place, smoke):
    process = run(place.direct("pairs=[de-en,tr-en]", "baselines=none", "name=whole"), timeout=600)
    assert process.returncode == 0, process.stderr
    results = place.root / "runs" / "whole"
    assert de_en_bleu(results, "hypothesis") > de_en_bleu(results, "source")


def test_the_ledger_says_what_it_cost(results):
    record = json.loads((results / "run.json").read_text(encoding="utf-8"))
    (moe,) = record["systems"]["moe"]
    assert moe["active_parameters"] < moe["parameters"]
    assert 0 < moe["mfu"] < 1
    assert 0.8 <= moe["useful_flops"] < 0.9  # of its experts' rows, more than a tenth stay empty
    for ledger in record["systems"]["bilingual"]:
        assert ledger["useful_flops"] >= 0.88
    assert [ledger["pair"] for ledger in record["systems"]["bilingual"]] == ["de-en", "tr-en"]
    assert record["corpus"]["licence"] == "MPL-2.0"
    events = {json.loads(line)["event"] for line in (results / "metrics.jsonl").read_text().splitlines()}
    assert events == {"train", "validation"}


def test_routing_is_recorded_and_drawn(results):
    sums = Counter()
    with (results / "routing.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            for measure in ("share", "weight"):
                sums[row["layer"], row["pair"], measure] += float(row[measure])
    assert {(layer, pair) for layer, pair, _ in sums} == set(product(("encoder.2", "decoder.2"), ("de-en", "tr-en")))
    for (_, _, measure), total in sums.items():  # two experts a token, whose weights sum to one
        assert total == pytest.approx(2 if measure == "share" else 1, abs=1e-4)
    for name in ("experts", "similarity", "training"):
        assert (results / f"routing_{name}.png").stat().st_size > 0
        assert (results / f"routing_{name}.svg").stat().st_size > 0
    assert '<section id="routing">' in (results / "report.html").read_text(encoding="utf-8")


def test_wandb_recorded_offline_without_asking(place, results):
    assert list((place.root / "artifacts" / "train").glob("*/log/wandb/offline-run-*")), "no offline run"


def test_a_second_run_does_nothing_and_says_so_in_five_seconds(place, smoke, results):
    """Under another layout: it changes no result and is in no key."""
    before = (results / "report.html").stat().st_mtime_ns
    summary = (results / "summary.md").read_text(encoding="utf-8")
    began = childrens_seconds()
    cut = ["LAYOUT=model", *place.command("runtime.ep=1", "runtime.mp=2")[1:]]
    again = run(["make", *cut, "LANG_PAIRS=de-en tr-en"], timeout=60)
    seconds = childrens_seconds() - began
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stderr
    assert "running" not in again.stderr
    assert seconds < 5
    assert (results / "report.html").stat().st_mtime_ns == before
    assert (results / "summary.md").read_text(encoding="utf-8") == summary


def wait_for_steps(place, process, beyond):
    """Until the training under way has recorded a step after `beyond`; its directory."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        for metrics in (place.root / "artifacts" / "train").glob("*.partial/log/metrics.jsonl"):
            lines = [line for line in metrics.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if lines and json.loads(lines[-1])["step"] > beyond:
                return metrics.parent.parent
        time.sleep(0.1)
    raise AssertionError("no training step in 90 s")


def test_a_changed_learning_rate_trains_again_but_tokenizes_nothing_and_survives_interruption(place, smoke):
    """SIGTERM and Ctrl-C each save a checkpoint and end with 75, which says to a scheduler that it may queue the job
    again, and 130; the same command goes on from there. SIGTERM as schedulers send it: to all processes, and again."""
    command = place.direct("train.learning_rate=1e-3", "name=changed")
    options = {
        "cwd": ROOT,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    steps = []
    for number, code in ((signal.SIGTERM, 75), (signal.SIGINT, 130)):
        process = subprocess.Popen(command, **options)
        partial = wait_for_steps(place, process, beyond=steps[-1] if steps else 0)
        status = read_status(place.root / "runs" / "changed")
        (trained,) = status.stages
        assert (status.state, status.pid, trained.title, trained.state) == (
            "running",
            process.pid,
            "train moe",
            "running",
        )
        assert trained.resumed_at < trained.fraction < 1
        assert (trained.resumed_at > 0) == bool(steps)
        asked_at = time.time()
        process.send_signal(number)
        if number == signal.SIGTERM:
            for pid, _ in children(process.pid):
                os.kill(pid, number)
            time.sleep(0.1)
            process.send_signal(number)
        _, errors = process.communicate(timeout=90)
        took = time.time() - asked_at
        assert process.returncode == code, errors
        assert "vocab moe: running" not in errors
        assert "encode" not in errors
        assert "stopped; the same command goes on from here" in errors
        status = read_status(place.root / "runs" / "changed")
        assert (status.state, status.stages[0].state, status.error) == ("stopped", "stopped", "")
        saved = sorted((partial / "checkpoints").glob("step-*"))
        assert saved[-1].stat().st_mtime > asked_at
        assert took < 30, "Slurm's KillWait"
        print(f"{number!r}: saved and ended in {took:.1f} s")
        steps.append(int(saved[-1].name.removeprefix("step-")))
    assert "train moe: resuming what was interrupted" in errors
    assert 0 < steps[0] < steps[1]
    lines = [json.loads(line) for line in (partial / "log" / "metrics.jsonl").read_text().splitlines()]
    numbers = [record["step"] for record in lines if record["event"] == "train"]
    assert numbers == sorted(set(numbers)), "a step was recorded twice or out of order"


def test_english_to_many_and_between_others_in_one_run(tmp_path):
    """en->X and X->Y with a shared vocabulary: tags on the source, zh and ja scored with their own tokenizers. Trained
    with heads, hidden units and vocabulary cut over both processes, and translated by each."""
    tiny = [
        "layout=model",
        "runtime.ep=1",
        "runtime.mp=2",
        "vocab=shared",
        "vocab.source_size=3000",
        "vocab.target_size=3000",
        "train.max_tokens=6000",
        "baselines.tiers=[]",
        "decode.beam=1",
        "decode.max_length_ratio=0.5",
        "score.resamples=100",
    ]
    process = run(Place(tmp_path).direct("pairs=[en-ja,de-zh-Hans,tr-en]", "name=many", *tiny), timeout=600)
    assert process.returncode == 0, process.stderr
    rows = {
        (r["pair"], r["metric"]): r["signature"] for r in scores(tmp_path / "runs" / "many") if r["system"] == "moe"
    }
    assert "tok:ja-mecab" in rows["en-ja", "bleu"]
    assert "tok:zh" in rows["de-zh-Hans", "bleu"]
    assert "tok:13a" in rows["tr-en", "bleu"]
    (moe,) = json.loads((tmp_path / "runs" / "many" / "run.json").read_text())["systems"]["moe"]
    assert (moe["processes"], moe["ep"], moe["mp"], moe["layout"]["N"]) == (2, 1, 2, ["model"])
