"""How the processes of a job find each other: a store, and a roll call that names who is missing."""

import json
import os
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

ANSWER = 10  # seconds that process 0 gets, beyond the time to join, to say who is missing


@dataclass(frozen=True, kw_only=True)
class World:
    """The processes that have met. hosts: of each, by rank. address: where process 0 serves the store, "" for a
    file."""

    rank: int
    hosts: list[str]
    store: Store
    address: str

    @property
    def size(self) -> int:
        return len(self.hosts)

    @classmethod
    def meet(cls, *, init_method: str, rank: int, size: int, timeout: int) -> "World":
        """init_method: file://path, tcp://host:port, or env:// for MASTER_ADDR and MASTER_PORT. timeout: seconds.
        Raises TimeoutError that names those who did not come."""
        address = "" if init_method.startswith("file://") else _address(init_method)
        if address:
            store: Store = _connect(address, rank=rank, size=size, timeout=timeout)
        else:
            store = FileStore(init_method.removeprefix("file://"), size)
        hosts = _call_roll(store, rank=rank, size=size, timeout=timeout)
        return cls(rank=rank, hosts=hosts, store=store, address=address)

    def name(self, ranks: list[int]) -> str:
        """`process 1 of 2`, with hosts where there are several."""
        text = _named(ranks, self.size)
        if len(set(self.hosts)) == 1:
            return text
        return f"{text} (on {', '.join(dict.fromkeys(self.hosts[rank] for rank in ranks[:8]))})"


def _address(init_method: str) -> str:
    if init_method == "env://":
        return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    return urlsplit(init_method).netloc


def _connect(address: str, *, rank: int, size: int, timeout: int) -> Store:
    """The store of this attempt, which process 0 serves, unless torchrun does.

    Names in it begin with a key that the launcher tells the job's processes alone. Raises ValueError as `_listen`, and
    TimeoutError.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = TCPStore(
            host,
            int(port),
            is_master=serves,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
            multi_tenant=True,
            master_listen_fd=_listen(host, int(port)) if serves else None,
        )
    except dist.DistNetworkError as error:
        reason = str(error).splitlines()[0]
        raise TimeoutError(
            f"process {rank} of {size} did not reach the store of its job, which process 0 serves at {address}, within "
            f"{timeout} s: {reason}"
        ) from error
    key = os.environ.get("BABELSHARD_STORE_KEY", "")
    return PrefixStore(f"{key}attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _listen(host: str, port: int) -> int:
    """Listen at this address alone, where PyTorch would listen at all that the host has; the socket's file descriptor.

    Raises ValueError if the address is not this host's, or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family).detach()
    except OSError as error:
        raise ValueError(
            f"process 0 cannot listen at {host}:{port} on {socket.gethostname()} ({error}); set runtime.master_address "
            "to this host's address on the network that the hosts share, or runtime.master_port to a free port"
        ) from error


def _call_roll(store: Store, *, rank: int, size: int, timeout: int) -> list[str]:
    """Process 0 waits for all and tells them the hosts, or who is missing."""
    keys = [f"here/{each}" for each in range(size)]
    store.set(keys[rank], socket.gethostname())
    if rank == 0:
        _wait(store, keys, timeout)
        missing = [each for each, key in enumerate(keys) if not store.check([key])]
        hosts = [] if missing else [host.decode() for host in store.multi_get(keys)]
        store.set("roll", json.dumps({"missing": missing, "hosts": hosts}))
        if missing:
            time.sleep(1)  # the store ends with this process
    elif not _wait(store, ["roll"], timeout + ANSWER):
        raise TimeoutError(f"process 0 of {size} did not join the job within {timeout} s")
    roll = json.loads(store.get("roll"))
    if roll["missing"]:
        raise TimeoutError(f"{_named(roll['missing'], size)} did not join the job within {timeout} s")
    hosts_found: list[str] = roll["hosts"]
    return hosts_found


def _wait(store: Store, keys: list[str], seconds: int) -> bool:
    """Whether the keys were set in time; FileStore's timeout is a plain RuntimeError."""
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except RuntimeError:
        return bool(store.check(keys))
    return True


def _named(ranks: list[int], size: int) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (f" and {len(ranks) - 8} more" if ranks[8:] else "")
    return f"process{'es' if ranks[1:] else ''} {shown} of {size}"
