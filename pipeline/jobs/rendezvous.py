"""The processes of a job meet in a store. A roll call names the missing ones."""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

ANSWER = 10  # seconds after the time to join, in which process 0 names the missing processes


@dataclass(frozen=True, kw_only=True)
class World:
    """The processes that have met.

    hosts: the host of each process, by rank.
    address: where process 0 serves the store; empty if the store is a file.
    """

    rank: int
    hosts: list[str]
    store: Store
    address: str

    @property
    def size(self) -> int:
        return len(self.hosts)

    @classmethod
    def meet(cls, *, init_method: str, rank: int, size: int, timeout: int) -> "World":
        """Meet the other processes. Raises TimeoutError that names the missing ones.

        init_method: file://path, tcp://host:port, or env:// for MASTER_ADDR and MASTER_PORT.
        timeout: seconds.
        """
        address = "" if init_method.startswith("file://") else _address(init_method)
        if address:
            store: Store = _connect(address, rank=rank, size=size, timeout=timeout)
        else:
            store = FileStore(init_method.removeprefix("file://"), size)
        hosts = _call_roll(store, rank=rank, size=size, timeout=timeout)
        return cls(rank=rank, hosts=hosts, store=store, address=address)

    def name(self, ranks: list[int]) -> str:
        """Return a text such as `process 1 of 2`, with the hosts if there are several."""
        text = _named(ranks, self.size)
        if len(set(self.hosts)) == 1:
            return text
        return f"{text} (on {', '.join(dict.fromkeys(self.hosts[rank] for rank in ranks[:8]))})"


def join_job(*, device: torch.device, timeout: int, met: Callable[[World], None] | None = None) -> None:
    """Meet the other processes of the job and start torch's process group. A collective.

    The environment says where: RANK, WORLD_SIZE and BABELSHARD_RENDEZVOUS, by default env://.

    timeout: seconds for all processes to come, and for each collective afterwards.
    met: called once all processes are there, before the first collective.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ.get("BABELSHARD_RENDEZVOUS", "env://")
    world = World.meet(init_method=address, rank=rank, size=size, timeout=timeout)
    if met is not None:
        met(world)
    connect(world, device=device, timeout=timeout)


def connect(world: World, *, device: torch.device, timeout: int) -> None:
    """Start torch's process group of processes that have met. timeout: seconds."""
    dist.init_process_group(
        **backend_of(device),
        store=world.store,
        rank=world.rank,
        world_size=world.size,
        timeout=timedelta(seconds=timeout),
    )


def backend_of(device: torch.device) -> dict[str, Any]:
    """Return what `init_process_group` must know of a device: gloo on a CPU, and on CUDA NCCL and the device itself.

    Without the device NCCL guesses one by the rank, and warns at the first barrier.
    """
    return {"backend": "nccl", "device_id": device} if device.type == "cuda" else {"backend": "gloo"}


def _address(init_method: str) -> str:
    if init_method == "env://":
        return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    return urlsplit(init_method).netloc


def _connect(address: str, *, rank: int, size: int, timeout: int) -> Store:
    """Connect to the store of this attempt, which process 0 or torchrun serves. Raises TimeoutError and ValueError.

    Names in the store begin with a key, which the launcher gives to the processes of the job alone.
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
    """Listen at this address and return the file descriptor. PyTorch would listen at all addresses of the host.

    Raises ValueError if the address is not one of this host, or if the port is taken.
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
    """Return the hosts by rank. Process 0 waits for all processes and names the missing ones to the others."""
    keys = [f"here/{member}" for member in range(size)]
    store.set(keys[rank], socket.gethostname())
    if rank == 0:
        _wait(store, keys, timeout)
        missing = [member for member, key in enumerate(keys) if not store.check([key])]
        hosts = [] if missing else [host.decode() for host in store.multi_get(keys)]
        store.set("roll", json.dumps({"missing": missing, "hosts": hosts}))
        if missing:
            time.sleep(1)  # the store ends with this process, and the others must read it first
    elif not _wait(store, ["roll"], timeout + ANSWER):
        raise TimeoutError(f"process 0 of {size} did not join the job within {timeout} s")
    roll = json.loads(store.get("roll"))
    if roll["missing"]:
        raise TimeoutError(f"{_named(roll['missing'], size)} did not join the job within {timeout} s")
    members: list[str] = roll["hosts"]
    return members


def _wait(store: Store, keys: list[str], seconds: int) -> bool:
    """Return true if the keys were set in time. FileStore raises a plain RuntimeError at its time-out."""
    try:
        store.wait(keys, timedelta(seconds=seconds))
    except RuntimeError:
        return bool(store.check(keys))
    return True


def _named(ranks: list[int], size: int) -> str:
    numbers = ", ".join(str(rank) for rank in ranks[:8]) + (f" and {len(ranks) - 8} more" if ranks[8:] else "")
    return f"process{'es' if ranks[1:] else ''} {numbers} of {size}"
