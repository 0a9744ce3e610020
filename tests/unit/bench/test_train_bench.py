"""The training benchmark: it trains a small model, the parts of a step add up, and ratios come from rounds."""

import csv
import itertools
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from bench.output import ORIGIN, origin, write_csv
from bench.train import router
from bench.train.contenders import CPU, CUDA, PEERS, QUICK, Contender, contests
from bench.train.contest import added, environment, job_of, own_job, run_contest
from bench.train.data import Sample, cut_batches, padded_tokens, write_text
from bench.train.stopwatch import Stopwatch
from bench.train.table import COLUMNS, ENGINE, SHARES, judge, table
from pipeline.config import ROOT, load_config
from pipeline.engine.checkpoint.weights import read_state
from pipeline.model.config import MoEConfig
from pipeline.train.retention import resolve


@pytest.fixture(scope="module")
def contest():
    """A contest of our own sections at the quick scale, with two processes."""
    (contest,) = contests(QUICK, device="cpu", sections=("overhead", "mfu"), dtypes=("fp32",), peers=())
    return replace(contest, rounds=(1, 2))


@pytest.fixture(scope="module")
def sample(prepared):
    return Sample(
        pairs=prepared.pairs,
        encoded=prepared.encoded,
        vocabulary=prepared.vocabulary,
        sizes=(3000, 1000),
        runtime=load_config([]).runtime,
    )


@pytest.fixture(scope="module")
def rounds(contest, sample, tmp_path_factory):
    """Rows of a real contest on two pairs of the sample. Its router is trained before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(router, "ARTIFACTS", tmp_path_factory.mktemp("artifacts"))
        yield list(run_contest(contest, sample, tmp_path_factory.mktemp("contest")))


def test_our_contenders_start_from_a_trained_router(contest, sample, rounds, tmp_path):
    """The router is trained once: the second job uses the checkpoint of the first, at its last step."""
    job = job_of(contest.contenders[0], contest, sample, tmp_path)["job"]
    (checkpoints,) = router.ARTIFACTS.glob("router-*/checkpoints")
    assert job["train"]["initialize_from"] == str(checkpoints)
    assert (resolve(checkpoints) / "state.json").exists()
    assert read_state(resolve(checkpoints))["progress"]["step"] == contest.router_steps
    dense = replace(contest, model=replace(contest.model, moe=MoEConfig()))
    assert job_of(dense.contenders[0], dense, sample, tmp_path)["job"]["train"]["initialize_from"] == ""


def test_parts_of_a_real_step_add_up(contest, rounds):
    assert [row["note"] for row in rounds] == [""]
    row = judge(contest, rounds)[0]
    assert row["rounds"] == 1
    assert row["processes"] == 2
    shares = {name: row[name] for name in SHARES}
    assert sum(shares.values()) == pytest.approx(1)
    # sums over micro-batches, FLOPs and checks take little time; a part without a stopwatch would count here too
    assert 0 <= shares["other"] < 0.3
    for part in (*ENGINE, "data", "logging", "collectives"):
        assert shares[part] > 0, part
    assert row["outside"] == pytest.approx(1 - sum(shares[part] for part in ENGINE))
    assert row["verdict"] in ("ok", "missed")


def test_mfu_is_useful_flops_over_the_measured_peak(contest, rounds):
    row = next(row for row in judge(contest, rounds) if row["section"] == "mfu")
    (measured_round,) = rounds
    assert measured_round["target_tokens"] > 2 * 400  # two steps of two groups of four rows
    seconds = measured_round["seconds"]
    assert row["mfu"] == pytest.approx(measured_round["useful_flops"] / seconds / measured_round["peak"])
    assert row["tokens_per_second"] == pytest.approx(measured_round["target_tokens"] / seconds)
    assert 0.4 < row["useful"] < row["served"] <= 1
    assert row["library"] in ("mkl", "onednn")
    assert row["verdict"] is None  # the target is one of larger models


def test_rows_become_a_table_and_a_file(contest, rounds, tmp_path):
    judged = judge(contest, rounds)
    write_csv(judged, COLUMNS, tmp_path / "train.csv")
    with (tmp_path / "train.csv").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames) == (*COLUMNS, *ORIGIN)
        written = list(reader)
    assert [row["section"] for row in written] == ["overhead", "mfu"]
    assert {tuple(row[name] for name in ORIGIN) for row in written} == {tuple(origin().values())}
    assert "d=64 E=4 2+2" in table(judged)


def test_the_command_says_what_a_peer_lacks(tmp_path):
    out = tmp_path / "train.csv"
    command = [sys.executable, "-m", "bench.train", "--quick", "--out", str(out)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert process.returncode == 0, process.stderr
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["section"] for row in rows} == {"scaling", "overhead", "mfu", "peers"}
    for row in rows:
        assert bool(row["tokens_per_second"]) != bool(row["note"]), row
        if row["section"] == "peers":
            assert int(row["processes"]) * int(row["threads"]) == QUICK.processes, row
    assert not any(row["note"] for row in rows if row["variant"] == "ours")


def measured(variant, number, rate, *, processes=1, threads=1, **columns):
    common = {"variant": variant, "processes": processes, "threads": threads, "note": "", "round": number, "steps": 2}
    return {**common, "parameters": 10, "seconds": 2.0, "target_tokens": 2 * rate, "cpu_seconds": 1.0, **columns}


def test_scaling_compares_round_by_round():
    (contest, *_) = contests(CPU, device="cpu", sections=("scaling",), dtypes=("fp32",), peers=())
    parts = {**dict.fromkeys(("forward", "backward", "step"), 0.5), "data": 0.0, "logging": 0.0, "collectives": 0.0}
    flops = {"useful_flops": 1e9, "nominal_flops": 1.25e9, "executed_flops": 2e9, "library": "mkl"}
    rows = []
    for number, rates in enumerate([(100, 190), (50, 95), (100, 150)], start=1):  # round 2 is a slow moment
        flops["peak"] = 1e9 if number == 2 else 2e9
        for processes, rate in enumerate(rates, start=1):
            rows.append(measured("ours", number, rate, processes=processes, **parts, **flops))
    single, double = judge(contest, rows)
    assert single["measured"] is None
    assert (double["measured"], double["verdict"]) == (pytest.approx(1.9), "ok")
    assert double["tokens_per_second"] == 150
    assert double["busy"] == pytest.approx(0.25)
    assert double["mfu"] == pytest.approx(1e9 / 2 / 2e9)  # over the highest peak


def test_a_peer_is_judged_against_ours_and_a_missing_one_says_why():
    (contest, *_) = contests(CPU, device="cpu", sections=("peers",), dtypes=("fp32",), peers=PEERS)
    parts = dict.fromkeys(("forward", "backward", "step", "data", "logging", "collectives"), 0.1)
    flops = {"useful_flops": 1e9, "nominal_flops": 1.25e9, "executed_flops": 2e9, "peak": 1e9, "library": "mkl"}
    rows = [{"variant": "joeynmt", "processes": 1, "threads": 2, "note": "not installed: ERROR"}]
    for number in (1, 2):
        rows.append(measured("ours", number, 130, processes=2, **parts, **flops))
        rows.append(measured("eole", number, 100, threads=2))
    assert judge(contest, rows[:1])[0]["note"] == "not installed: ERROR"  # before anything has run
    judged = {(row["variant"], row["threads"]): row for row in judge(contest, rows)}
    assert judged["joeynmt", 2]["note"] == "not installed: ERROR"
    assert judged["joeynmt", 2]["verdict"] is None
    assert (judged["eole", 2]["measured"], judged["eole", 2]["verdict"]) == (pytest.approx(1.3), "ok")
    assert judged["ours", 1]["measured"] is None


def test_what_runs_inside_a_part_counts_once():
    watch = Stopwatch()
    inner = watch.timed("collectives", lambda: time.sleep(0.05))

    def outer():
        time.sleep(0.02)
        inner()
        time.sleep(0.02)

    start = time.perf_counter()
    watch.timed("step", outer)()
    whole = time.perf_counter() - start
    assert watch.seconds["collectives"] >= 0.05
    assert 0.04 <= watch.seconds["step"] <= whole - 0.05
    assert sum(watch.seconds.values()) <= whole


def test_processes_are_added_and_the_slowest_decides():
    constants = {"round": 1, "steps": 2, "threads": 1, "parameters": 7}
    rows = [
        {**constants, "seconds": 2.0, "target_tokens": 30, "forward": 1.0},
        {**constants, "seconds": 2.5, "target_tokens": 20, "forward": 1.5},
    ]
    assert added(rows) == {**constants, "seconds": 2.5, "target_tokens": 50, "forward": 2.5}


def sentences(*lengths):
    return [(np.arange(4, 4 + source), np.arange(4, 4 + target)) for source, target in lengths]


def test_batches_of_peers_hold_as_many_real_target_tokens(tmp_path):
    pairs = sentences(*[(10, 5), (6, 5)] * 40)
    batches = cut_batches(pairs, 20)
    assert all(sum(len(target) for _, target in batch) == 20 for batch in batches)
    assert padded_tokens(pairs, 20) == 32  # (10 + 6) / (5 + 5) of 20
    write_text(batches, 50, tmp_path)
    first = (tmp_path / "train.src").read_text().splitlines()[0].split()
    assert first == [f"t{i}" for i in batches[0][0][0][:-1]]
    assert len((tmp_path / "vocab.txt").read_text().splitlines()) == 46


def test_plans_cover_what_is_asked():
    contest_list = contests(CPU, device="cpu", sections=("scaling", "peers"), dtypes=("fp32", "bf16"), peers=PEERS)
    assert [(c.sections, c.title, c.dtype) for c in contest_list] == [
        *((("scaling",), f"d={size}", dtype) for size in ("512 E=8 6+6", "256 E=8 3+3") for dtype in ("fp32", "bf16")),
        *((("peers",), title, "fp32") for title in ("d=512 6+6",) * 3 + ("d=512 E=8 6+6",)),
    ]
    assert [c.contenders[-1].name for c in contest_list[4:]] == [*PEERS, "transformers"]
    for contest in contest_list[4:]:
        assert contest.contenders[0] == Contender(name="ours", processes=2, threads=1)
        assert contest.rounds == (5, 5, 5, 5, 5, 5)


def test_peers_have_all_cores_and_our_allocator(tmp_path):
    for contest in contests(CPU, device="cpu", sections=("peers",), dtypes=("fp32",), peers=PEERS):
        for contender in contest.contenders:
            variables = environment(contender, contest.device, 0, tmp_path)
            assert int(variables["OMP_NUM_THREADS"]) * contender.processes == CPU.processes
            assert variables["MKL_NUM_THREADS"] == variables["OMP_NUM_THREADS"]
            assert any(name.startswith("MALLOC_") for name in variables)


@pytest.mark.parametrize("peer", PEERS)
def test_peers_read_batches_of_one_length(peer, sample, tmp_path):
    """Batches have little padding: neighbours differ by more than a tenth in their longer side only between batches."""
    (contest,) = contests(QUICK, device="cpu", sections=("peers",), dtypes=("fp32",), peers=(peer,))[:1]
    job = job_of(contest.contenders[-1], contest, sample, tmp_path)
    if peer == "transformers":
        longer = [max(map(len, pair)) for batch in job["batches"] for pair in batch]
    else:
        sides = [(tmp_path / f"train.{side}").read_text().splitlines() for side in ("src", "tgt")]
        longer = [max(len(line.split()) for line in pair) for pair in zip(*sides, strict=True)]
    changes = [abs(a - b) > 0.1 * max(a, b) for a, b in itertools.pairwise(longer)]
    assert sum(changes) / len(changes) < 0.15


def test_the_plan_for_cuda_is_one_process_of_gshards_size(sample, tmp_path):
    (contest,) = contests(CUDA, device="cuda", sections=("mfu",), dtypes=("bf16",), peers=())
    assert contest.contenders == (Contender(name="ours", processes=1, threads=1),)
    job = own_job(contest.contenders[0], contest, sample, tmp_path)
    assert (job.model.dim, job.model.ffn_dim, job.model.heads * job.model.key_dim) == (1024, 8192, 2048)
    assert (job.model.moe.num_experts, job.runtime.device, job.train.precision) == (16, "cuda", "bf16")
