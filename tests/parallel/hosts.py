"""Two hosts on one machine: two network namespaces with their own names, connected by a virtual cable."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER_PATH = f"{os.environ['PATH']}:/usr/sbin"


@dataclass(frozen=True)
class Host:
    """One host. name: of the namespace, which gethostname returns in it."""

    name: str
    address: str

    def command(self, words: Sequence[str]) -> list[str]:
        """Return a command that runs the words on this host, without another process around it."""
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name, *words]
        return ["ip", "netns", "exec", self.name, *named]

    def cable(self, state: str) -> None:
        """Set the state of the cable: down or up."""
        ip("-n", self.name, "link", "set", "cable", state)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """Provide two hosts and remove them afterwards, also if the test fails. Skip the test if they are impossible."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need `ip` (iproute2)")
    hosts = [Host(f"host-{letter}-{os.getpid()}", f"10.77.0.{n}") for n, letter in enumerate("ab", start=1)]
    try:
        try:
            for host in hosts:
                ip("netns", "add", host.name)
                ip("-n", host.name, "link", "set", "lo", "up")
            ip("-n", hosts[0].name, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", hosts[1].name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        for host in hosts:
            ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "cable")
            host.cable("up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


@contextmanager
def ssh_between(hosts: Sequence[Host], directory: Path) -> Iterator[Path]:
    """Run a server on each host, and provide a directory for PATH with an `ssh` that they trust, with its own keys."""
    for name in ("sshd", "pdsh"):
        if shutil.which(name, path=SERVER_PATH) is None:
            pytest.skip(f"{name} is not installed")
    for key in ("server", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key], check=True)
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd needs this directory
    options = {
        "HostKey": directory / "server",
        "AuthorizedKeysFile": directory / "user.pub",
        "StrictModes": "no",
        "PermitRootLogin": "yes",
    }
    server = [shutil.which("sshd", path=SERVER_PATH) or "", "-D", "-e", "-f", "/dev/null"]
    server += [f"-o{name}={value}" for name, value in options.items()]
    (directory / "bin").mkdir()
    client = directory / "bin" / "ssh"
    client.write_text(
        f"#!/bin/sh\nexec {shutil.which('ssh')} -i {directory}/user -o StrictHostKeyChecking=no "
        '-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"\n'
    )
    client.chmod(0o755)
    with (directory / "sshd.out").open("wb") as output:
        servers = [subprocess.Popen(host.command(server), stdout=output, stderr=output) for host in hosts]
    try:
        yield client.parent
    finally:
        for server_process in servers:
            server_process.terminate()
            server_process.wait()
