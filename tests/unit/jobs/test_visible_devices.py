"""Each of several jobs that run side by side sees one device, as real processes that are launched."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from pipeline.config import load_config
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.calls import TranslatorSpec
from pipeline.decode.job.workers import TranslatorPool
from pipeline.jobs import visible_devices
from pipeline.jobs.device import pick_device
from pipeline.jobs.hosts import check_launcher, launch_job
from pipeline.jobs.rendezvous import backend_of
from pipeline.jobs.visible_devices import check_devices, device_type

RUNTIME = replace(load_config(["recipes=smoke"]).runtime, device="auto", processes=1, ep=1, parallel_baselines=4)


def given(directory, runtime, slot):
    """Launch a job, and return what each of its processes was given."""
    out = directory / f"{runtime.device}-{slot}"
    job = {"runtime": asdict(runtime)}
    launch_job("tests.unit.jobs.environment_worker", job, directory=out, runtime=runtime, title="job", slot=slot)
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("given-*.json"))]


@pytest.mark.parametrize(
    ("users", "devices"),
    [
        ("4,5,6,7", ["4", "5", "6", "7"]),
        ("MIG-4a, GPU-8932f937", ["MIG-4a", "GPU-8932f937", "MIG-4a", "GPU-8932f937"]),  # fewer devices than jobs
        ("2,-1,3", ["2", "2", "2", "2"]),  # CUDA reads no further than -1
        ("", [""] * 4),
        ("-1", ["-1"] * 4),
    ],
)
def test_a_slot_has_the_device_of_its_number_among_those_that_the_user_left(tmp_path, monkeypatch, users, devices):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", users)
    processes = [given(tmp_path, RUNTIME, slot) for slot in range(4)]
    assert [process["CUDA_VISIBLE_DEVICES"] for (process,) in processes] == devices
    for (process,) in processes:
        assert (process["RANK"], process["LOCAL_RANK"], process["WORLD_SIZE"]) == ("0", "0", "1")
        assert process["runtime"]["device"] == "auto"


def test_without_a_list_of_the_user_devices_are_those_that_torch_counts(tmp_path, monkeypatch):
    """There is no device here, so this test says how many torch would find, and that there is a driver."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    cuda = replace(RUNTIME, device="cuda")
    devices = [given(tmp_path, cuda, slot)[0]["CUDA_VISIBLE_DEVICES"] for slot in range(4)]
    assert devices == ["0", "1", "2", "0"]
    monkeypatch.setattr(visible_devices, "DRIVERS", [tmp_path])
    assert given(tmp_path, RUNTIME, 2)[0]["CUDA_VISIBLE_DEVICES"] == "2"
    monkeypatch.setattr(visible_devices, "DRIVERS", [tmp_path / "none"])
    assert given(tmp_path, RUNTIME, 1)[0]["CUDA_VISIBLE_DEVICES"] is None


@pytest.mark.parametrize(
    ("changes", "processes"),
    [({"processes": 2}, 2), ({"parallel_baselines": 1}, 1), ({"device": "cpu"}, 1)],
)
def test_a_job_of_several_processes_or_on_its_own_sees_what_the_command_sees(tmp_path, monkeypatch, changes, processes):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    devices = [process["CUDA_VISIBLE_DEVICES"] for process in given(tmp_path, replace(RUNTIME, **changes), 1)]
    assert devices == ["4,5"] * processes


def test_processes_of_one_machine_meet_on_its_loopback_interface(tmp_path, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "mine")
    (process,) = given(tmp_path, RUNTIME, 0)
    assert (process["GLOO_SOCKET_IFNAME"], process["NCCL_SOCKET_IFNAME"]) == ("lo", "mine")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    (process,) = given(tmp_path, RUNTIME, 1)
    assert process["NCCL_SOCKET_IFNAME"] == "=lo"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that pretends a number of devices; there is none here."""

    def pretend(devices):
        monkeypatch.setattr(visible_devices, "DRIVERS", [tmp_path if devices else tmp_path / "none"])
        monkeypatch.setattr("torch.cuda.device_count", lambda: devices)

    return pretend


@pytest.mark.parametrize(
    ("setting", "devices", "processes", "type_"),
    [
        ("auto", 0, 2, "cpu"),
        ("auto", 1, 1, "cuda"),
        ("auto", 8, 2, "cuda"),
        ("cpu", 1, 2, "cpu"),
        ("cuda", 2, 2, "cuda"),
    ],
)
def test_auto_takes_the_devices_of_the_machine(machine, setting, devices, processes, type_):
    machine(devices)
    check_devices(setting, processes)
    assert device_type(setting) == type_


@pytest.mark.parametrize(
    ("setting", "devices", "processes", "counts"),
    [
        ("auto", 1, 2, "2 processes on this machine, where torch finds 1 CUDA device;"),
        ("auto", 4, 8, "8 processes on this machine, where torch finds 4 CUDA devices;"),
        ("cuda", 0, 1, "1 process on this machine, where torch finds 0 CUDA devices;"),
    ],
)
def test_processes_without_a_device_of_their_own_are_an_error(machine, setting, devices, processes, counts):
    """Such a run went to the CPU without a word."""
    machine(devices)
    settings = replace(RUNTIME, device=setting, processes=processes)
    spec = TranslatorSpec(checkpoints="", vocabulary="", decode=DecodeConfig(), max_source_tokens=8)
    error = rf"runtime.device={setting} with {counts} set runtime.processes and .* or runtime.device=cpu"
    with pytest.raises(ValueError, match=error):
        check_launcher(settings)
    with pytest.raises(ValueError, match=error):
        pick_device(setting, local_rank=0, local_processes=processes)
    with pytest.raises(ValueError, match=error):
        TranslatorPool(spec, settings)


def test_nccl_is_told_its_device():
    """No NCCL is here to start, so this looks at the arguments alone; the other tests start gloo."""
    device = torch.device("cuda", 3)
    assert backend_of(device) == {"backend": "nccl", "device_id": device}
    assert backend_of(torch.device("cpu")) == {"backend": "gloo"}


def test_the_presets_train_a_bilingual_model_on_each_gpu():
    words = ["recipes=smoke", "batch.groups_per_step=16", "model.moe.num_experts=8"]
    presets = ("cpu", "gpu", "node", "slurm", "hostfile")
    numbers = [load_config([*words, f"runtime={name}"]).runtime.parallel_baselines for name in presets]
    assert numbers == [2, 1, 8, 8, 8]
    four = load_config([*words, "runtime=node", "runtime.processes=4", "runtime.ep=4"])
    assert four.runtime.parallel_baselines == 4


def test_baselines_that_one_node_has_made_are_those_of_a_run_on_two():
    """As docs/clusters.md says: where they train does not affect them."""
    words = ["recipes=smoke", "batch.groups_per_step=16", "model.moe.num_experts=8"]
    alone = load_config([*words, "runtime=gpu", "runtime.parallel_baselines=8"])
    assert alone.baselines == load_config([*words, "runtime=slurm"]).baselines
