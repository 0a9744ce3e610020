"""A hostfile or an address from somebody else starts no program."""

import shlex
from dataclasses import replace

import pytest

from pipeline.config import load_config
from pipeline.jobs.hosts import launch_on_hosts, read_hostfile


@pytest.fixture(scope="module")
def runtime():
    return load_config(["runtime=hostfile", "batch.groups_per_step=16", "runtime.device=cpu"]).runtime


def test_options_of_ssh_in_a_hostfile_run_nothing(runtime, tmp_path):
    """ssh would read the name as an option, and run its command on the host that launches."""
    mark, file = tmp_path / "executed", tmp_path / "hostfile"
    file.write_text(f"-oProxyCommand=touch${{IFS}}{mark} slots=1\n")
    settings = replace(runtime, hostfile=str(file), processes=1, ep=1)
    with pytest.raises(ValueError, match=r"hostfile:1: '-oProxyCommand=.*' is not the name of a host: write letters"):
        launch_on_hosts("pipeline.train", {}, directory=tmp_path / "log", runtime=settings, title="train")
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "-oProxyCommand=touch",
        "me@-oProxyCommand=touch",
        "node-a;touch",
        "$(touch)",
        "`touch`",
        "exec:node-a",  # pdsh reads it as a method to reach a host: a program on this host
        "node-a,node-b",
        "^/etc/passwd",  # pdsh reads it as a file of names
        "node-[1-9]",
        "'node-a'",
        "a@b@c",
        "nöde",
        "%h",
    ],
)
def test_names_of_hosts_are_plain_words(name, tmp_path):
    file = tmp_path / "hostfile"
    file.write_text(f"node-a slots=1\n{name} slots=1\n")
    with pytest.raises(ValueError, match=r"hostfile:2: .* is not the name of a host"):
        read_hostfile(file)


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_all_parts_of_a_line_are_checked_that_other_programs_would_cut(separator, tmp_path):
    file = tmp_path / "hostfile"
    file.write_text(f"node-a slots=1{separator}-oProxyCommand=touch slots=1\n")
    with pytest.raises(ValueError, match=r"hostfile:2: '-oProxyCommand=touch' is not the name of a host"):
        read_hostfile(file)


@pytest.mark.parametrize("address", ["node-a;touch x", "$(touch)", "-oProxyCommand=x", "node-a\ntouch", "%h", "a b"])
def test_the_address_of_the_first_host_is_a_plain_word(runtime, address):
    """pdsh writes it into the command line of a shell on every host."""
    with pytest.raises(ValueError, match=r"runtime.master_address=.* is not the name or address of a host"):
        replace(runtime, master_address=address)
    for valid in ("node-a.example.org", "10.77.0.1", "2001:db8::1", "::1"):
        assert shlex.quote(replace(runtime, master_address=valid).master_address) == valid
