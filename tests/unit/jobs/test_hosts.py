"""Launcher commands for several hosts, and errors before any work."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from pipeline.config import ROOT, load_config
from pipeline.dag.run import train_run
from pipeline.jobs import hosts, remote, visible_devices
from pipeline.jobs.hosts import (
    States,
    check_launcher,
    launcher_command,
    meeting_point,
    processes_per_host,
    read_hostfile,
)


@cache
def runtime(*overrides):
    return load_config(["batch.groups_per_step=16", *overrides, "runtime.device=cpu"]).runtime


@pytest.fixture
def programs(monkeypatch):
    """Pretend that all programs of a launcher are installed."""
    monkeypatch.setattr(hosts.shutil, "which", lambda name: f"/bin/{name}")


def test_srun_starts_as_many_on_each_node(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert launcher_command(runtime("runtime=slurm", "runtime.threads=4")) == [
        *("srun", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--cpus-per-task=4", "--kill-on-bad-exit=1"),
        *(sys.executable, "-m"),
    ]
    place = meeting_point(runtime("runtime=slurm", "runtime.master_address=node-a", "runtime.master_port=1234"))
    assert place == {"MASTER_ADDR": "node-a", "MASTER_PORT": "1234"}


def test_deepspeeds_launcher_gets_the_hostfile(tmp_path):
    (tmp_path / "hostfile").write_text("node-a slots=16\n")
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", f"--hostfile={tmp_path / 'hostfile'}"]
    hostfile = f"runtime.hostfile={tmp_path / 'hostfile'}"
    rest = ["--force_multi", "--no_local_rank", "--quiet", "--module"]
    assert launcher_command(runtime("runtime=hostfile", hostfile)) == [*launcher, "--master_port=29500", *rest]
    addressed = runtime("runtime=hostfile", hostfile, "runtime.master_address=node-a", "runtime.master_port=1234")
    assert launcher_command(addressed) == [*launcher, "--master_addr=node-a", "--master_port=1234", *rest]


def test_a_hostfile_is_read_and_its_mistakes_are_named(tmp_path):
    file = tmp_path / "hostfile"
    file.write_text("# two\nnode-a slots=8\n\n  me@10.0.0.2   slots=4\n")
    assert read_hostfile(file) == {"node-a": 8, "me@10.0.0.2": 4}
    for wrong in ("node-a slots=8\nnode-a slots=1\n", "node-a slots=8\nnode-b\n"):
        file.write_text(wrong)
        with pytest.raises(ValueError, match=r"hostfile:2: .* is not `name slots=N`, or repeats a name"):
            read_hostfile(file)
    with pytest.raises(ValueError, match=r"runtime.hostfile=.*none does not exist"):
        read_hostfile(tmp_path / "none")


def test_the_processes_of_a_host(monkeypatch, tmp_path):
    (tmp_path / "hostfile").write_text("node-a slots=8\nnode-b slots=4\n")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "4")
    assert processes_per_host(runtime("runtime=slurm")) == 4
    assert processes_per_host(replace(runtime("runtime=hostfile"), hostfile=str(tmp_path / "hostfile"))) == 4
    assert processes_per_host(runtime()) == 2


@pytest.mark.usefixtures("programs")
def test_a_run_warns_of_experts_on_other_nodes_than_those_of_the_gate(monkeypatch, caplog):
    """16 processes on 4 nodes, the experts cut over all of them. The run is stopped before its first stage."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "4")
    monkeypatch.setattr("pipeline.dag.run._prepared", lambda *_: (_ for _ in ()).throw(InterruptedError))
    words = ["runtime=slurm", "runtime.device=cpu", "runtime.ep=16", "batch.groups_per_step=16"]
    for nodes in (2, 4, 8):
        gate = ["gate=node_limited", "model.moe.num_experts=16", f"model.moe.gate.expert_nodes={nodes}"]
        config = load_config([*words, *gate])
        caplog.clear()
        with pytest.raises(InterruptedError):
            train_run(config)
        assert [f"expert_nodes={nodes}, but" in text for text in caplog.messages] == ([True] if nodes == 2 else [])


@pytest.mark.usefixtures("programs")
def test_slots_and_processes_must_agree(tmp_path):
    (tmp_path / "hostfile").write_text("node-a slots=8\nnode-b slots=4\n")
    settings = replace(runtime("runtime=hostfile"), hostfile=str(tmp_path / "hostfile"))
    with pytest.raises(ValueError, match=r"processes=16, but .* 12 slots in all; set runtime.processes=12"):
        check_launcher(settings)
    check_launcher(replace(settings, processes=12, ep=4))


@pytest.mark.usefixtures("programs")
def test_slurm_is_asked_for_inside_a_job_whose_nodes_divide_the_processes(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ValueError, match="works inside a Slurm job"):
        check_launcher(runtime("runtime=slurm"))
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    with pytest.raises(ValueError, match=r"processes=16 does not divide evenly over the 3 nodes"):
        check_launcher(runtime("runtime=slurm"))
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "4")
    check_launcher(runtime("runtime=slurm"))


def test_missing_programs_and_devices_are_errors_before_work(monkeypatch, tmp_path):
    (tmp_path / "hostfile").write_text("node-a slots=16\n")
    monkeypatch.setattr(hosts.shutil, "which", lambda name: None if name == "pdsh" else name)
    with pytest.raises(ValueError, match=r"runtime.launcher=hostfile needs pdsh"):
        check_launcher(replace(runtime("runtime=hostfile"), hostfile=str(tmp_path / "hostfile")))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    for preset, number in (("node", "8 processes"), ("hostfile", "1 process")):  # of which this host runs the baselines
        with pytest.raises(ValueError, match=rf"runtime.device=cuda with {number} .* 0 CUDA devices"):
            check_launcher(replace(runtime(f"runtime={preset}"), device="cuda"))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("preset", ["hostfile", "slurm"])
def test_hosts_do_not_choose_their_devices_each_for_itself(preset):
    with pytest.raises(ValueError, match=rf"auto with runtime.launcher={preset}: .* set runtime.device to cuda or cpu"):
        check_launcher(replace(runtime(f"runtime={preset}"), device="auto"))


def test_a_driver_that_torch_cannot_use_is_said(monkeypatch, tmp_path, caplog):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(visible_devices, "DRIVERS", [tmp_path])
    check_launcher(replace(runtime(), device="cpu"))
    assert not caplog.messages
    check_launcher(replace(runtime(), device="auto"))
    (message,) = caplog.messages
    assert "torch finds no device, so the CPU computes" in message
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check_launcher(replace(runtime(), device="auto"))
    assert len(caplog.messages) == 1


def place(**changes):
    return {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **changes}


@pytest.fixture
def meeting(monkeypatch):
    """Return a function that says where processes meet. The user has set no interface."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_PORT", "29500")
    return lambda address: monkeypatch.setenv("MASTER_ADDR", address)


def test_processes_take_the_interface_that_leads_to_the_first_host(meeting):
    meeting("127.0.0.1")
    expected = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo"}
    assert remote.interface(place(LOCAL_WORLD_SIZE="2")) == expected
    with pytest.raises(ValueError, match=r"127.0.0.1 is a loopback address .* set runtime.master_address"):
        remote.interface(place())
    meeting("no-such-host.invalid")
    with pytest.raises(ValueError, match=r"cannot resolve no-such-host.invalid"):
        remote.interface(place())


def test_an_interface_of_the_user_stays(meeting, monkeypatch):
    meeting("127.0.0.1")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    assert remote.interface(place(LOCAL_WORLD_SIZE="2")) == {"GLOO_SOCKET_IFNAME": "lo"}
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "mine")
    assert remote.interface(place()) == {}  # nothing is looked for


def test_an_address_of_no_interface_is_an_error(meeting, monkeypatch):
    meeting("127.0.0.1")
    monkeypatch.setattr("psutil.net_if_addrs", dict)
    with pytest.raises(ValueError, match=r"no network interface of .* has the address 127.0.0.1"):
        remote.interface(place(LOCAL_WORLD_SIZE="2"))


def test_a_directory_that_is_not_shared_is_an_error(tmp_path):
    (tmp_path / "job.json").write_text(json.dumps({"runtime": {}}))
    (tmp_path / "attempt").write_text("an older one")
    command = [sys.executable, "-m", "pipeline.jobs.remote", "pipeline.train", tmp_path / "job.json", "this one"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 1
    assert "runtime.artifacts must be on a file system that all hosts share" in result.stderr


def test_processes_without_a_word_are_named(tmp_path):
    states = States(tmp_path, "now", 3)
    for rank, attempt, code in ((0, "now", None), (1, "now", 0), (2, "an earlier one", 0)):
        remote.State(tmp_path, rank, attempt).write(code)
    assert states.codes() == [None, 0, None]
    assert states.missing().startswith("process 0 (on ")
    assert states.missing().endswith("of 3 ended without a word (killed?)")
    remote.State(tmp_path, 0, "an earlier one").write(0)
    assert states.missing().startswith("processes 0, 2 of 3 did not start; what the launcher said is above and in ")
