"""The first lines of a run: its model, its devices, and the time that `make plan` gives."""

import logging
import subprocess
import sys
from dataclasses import replace

import pytest

from pipeline.commands import opening
from pipeline.commands.opening import (
    announce,
    describe_model,
    describe_most_time,
    describe_place,
    describe_time,
    seconds_here,
    training_seconds,
)
from pipeline.config import ROOT, load_config
from pipeline.jobs import default_precision
from pipeline.jobs.visible_devices import check_devices
from pipeline.plan.command import answer
from pipeline.plan.config import load_plan


def planned_seconds(*words):
    return answer(load_plan(words)).values["budget"]["days"] * 86400


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A function that puts GPUs of a model into this machine, as NVIDIA's driver describes them."""

    def add(*models):
        for number, model in enumerate(models):
            (tmp_path / f"0000:0{number}:00.0").mkdir()
            text = f"Model: \t\t {model}\nIRQ:   \t\t 16\nGPU UUID: \t GPU-1\nBus Location: \t 0000:04:00.0\n"
            (tmp_path / f"0000:0{number}:00.0" / "information").write_text(text, encoding="utf-8")

    monkeypatch.setattr(opening, "GPUS", tmp_path)
    return add


def test_the_estimate_is_that_of_make_plan(gpus):
    assert training_seconds(load_config(["recipes=demo"])) == pytest.approx(
        planned_seconds("recipes=demo", "devices=2", "device=cpu")
    )
    gpus("NVIDIA H100 80GB HBM3")
    config = load_config(["recipes=demo", "runtime=gpu"])
    assert training_seconds(config) == pytest.approx(planned_seconds("recipes=demo", "devices=1", "device=h100"))
    assert describe_place(config.runtime).endswith("1 process of one GPU each (NVIDIA H100 80GB HBM3)")


@pytest.mark.parametrize(
    "overrides",
    [
        ["runtime=gpu"],  # a GPU of a model that has no file
        ["runtime=slurm", "batch.groups_per_step=16"],
        ["runtime.device=cpu", "runtime.threads=2"],
    ],
)
def test_without_a_plan_there_is_no_time(gpus, overrides):
    gpus("NVIDIA GeForce GTX 960")
    seconds = training_seconds(load_config(["recipes=demo", *overrides]))
    assert seconds is None
    assert describe_time(load_config(["recipes=demo"]), seconds) == ""


@pytest.mark.parametrize(("flag", "has_time"), [("avx512_bf16", True), ("avx2", False)])
def test_a_processor_that_imitates_bf16_has_no_time(tmp_path, monkeypatch, flag, has_time):
    """It said "about 1 h 27 min" of a training that would have taken three days."""
    (tmp_path / "cpuinfo").write_text(f"flags : fpu {flag}\n", encoding="utf-8")
    monkeypatch.setattr(default_precision, "CPUINFO", tmp_path / "cpuinfo")
    config = load_config(["recipes=demo", "train.precision=bf16"])
    assert seconds_here(config) == (training_seconds(config) if has_time else None)
    assert seconds_here(load_config(["recipes=demo"])) is not None


def test_a_gpu_that_the_cpus_preset_leaves_alone_is_named(gpus):
    """`make train` asked for two processes and ended with an error on a machine with one GPU."""
    assert describe_place(load_config([]).runtime).endswith("2 processes of 1 thread each")
    gpus("NVIDIA H100 80GB HBM3")
    config = load_config(["recipes=demo"])
    check_devices(config.runtime.device, config.runtime.processes)
    assert training_seconds(config) == pytest.approx(planned_seconds("recipes=demo", "devices=2", "device=cpu"))
    note = "2 processes of 1 thread each; its GPU is not used (NVIDIA H100 80GB HBM3): add RUNTIME=gpu to train on it"
    assert describe_place(config.runtime).endswith(note)


def test_more_processes_than_gpus_have_no_gpu_each(gpus):
    """Such a run ends with an error (`check_devices`) after these lines."""
    gpus("NVIDIA H100 80GB HBM3")
    config = load_config(["recipes=demo", "runtime.device=auto"])
    assert training_seconds(config) == pytest.approx(planned_seconds("recipes=demo", "devices=2", "device=cpu"))
    assert describe_place(config.runtime).endswith("2 processes of 1 thread each")


def test_the_hosts_of_a_cluster_are_named():
    hosts = describe_place(
        load_config(["runtime=hostfile", "runtime.hostfile=my_hosts", "batch.groups_per_step=16"]).runtime
    )
    assert hosts == "where: on the hosts of my_hosts, 16 processes"
    slurm = describe_place(load_config(["runtime=slurm", "batch.groups_per_step=16"]).runtime)
    assert slurm == "where: on the nodes of this Slurm job, 16 processes"


def test_the_lines_name_the_run_its_pairs_and_its_model(caplog):
    caplog.set_level(logging.INFO)
    config = load_config(["recipes=smoke", "name=mine"])
    announce(config, describe_model(config), "", describe_time(config, 130))
    assert [record.message for record in caplog.records] == [
        "mine: recipe smoke, 2 language pairs: de-en, tr-en",
        "model: MoE Transformer, 4 experts, 1.95 M parameters, 1.69 M of them active for a token",
        "time: about 2 min for the training, as make plan estimates; the bilingual models come after it",
    ]


def test_a_vocabulary_that_grows_gives_a_largest_size():
    config = load_config(["recipes=smoke"])
    grown = replace(config, vocab=replace(config.vocab, from_run="known", extend={"tr": None}))
    assert describe_model(grown).startswith("model: MoE Transformer, 4 experts, at most ")
    assert describe_model(grown).replace("at most ", "") != describe_model(config)


def test_models_that_stop_by_themselves_have_a_longest_time():
    assert describe_most_time(7500) == "time: at most 2 h 05 min; most models stop long before"
    assert describe_most_time(None) == ""


@pytest.mark.parametrize(
    ("pairs", "line"),
    [
        ("[de-en]", "recipe demo, de-en"),
        ("[all]", "recipe demo, all language pairs of the corpus"),
        ("[a-b,b-c,c-d,d-e,e-f,f-g,g-h,h-i,i-j]", "9 language pairs: a-b, b-c, c-d, d-e, e-f, f-g, g-h, h-i, …"),
    ],
)
def test_few_pairs_are_listed(caplog, pairs, line):
    caplog.set_level(logging.INFO)
    announce(load_config([f"pairs={pairs}"]))
    assert caplog.records[0].message.endswith(line)


def test_a_dense_model_and_a_run_without_bilingual_models():
    config = load_config(["recipes=demo", "model.moe.num_experts=0", "baselines=none"])
    assert describe_model(config).startswith("model: Transformer, ")
    assert "active" not in describe_model(config)
    assert describe_time(config, 30) == "time: less than a minute for the training, as make plan estimates"


def test_no_time_is_spent_on_torch():
    code = """
import sys
from pipeline.commands.train import seconds_here
from pipeline.config import load_config
seconds_here(load_config(["train.precision=bf16"]))
print("torch" in sys.modules)
"""
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output == "False\n"
