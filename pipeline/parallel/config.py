"""Configuration of where and on how much a run executes; none of it may change a result, so it is in no stage key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.model.config import Recompute
from pipeline.parallel.layout import Layout
from pipeline.tasks.config import DataConfig

BUCKET = 500_000_000  # elements of the buffer for gradients on the way, if the model has as many: DeepSpeed's default


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """processes: of training and decoding, one device each. threads: of each process. ep, mp: of them, how many share
    the experts and how many share a model, where the layout cuts them (`layout_of`); decoding knows ep alone.

    device: cpu, cuda, or auto (cuda where each process gets one). zero_stage: 1 or 2. parallel_baselines: bilingual
    models trained side by side, one process each. timeout: seconds after which a collective that hears nothing fails,
    and that processes have to join their job. heartbeat: seconds of silence after which a process counts as lost.
    recompute: what backward computes again to save memory: none, selective, layers or all (`Transformer.recompute`).
    decode_experts: where experts are while a model translates: replicated is all in every process, which then waits for
    no other; sharded cuts them over `ep` processes, as training does; auto does where the memory is too small.
    compile: torch.compile for training, which agrees with eager up to rounding (`pipeline.model.compilation`).
    artifacts, runs: directories of stages' outputs and of finished runs. wandb: offline, online, disabled, or auto
    (online for somebody who is logged in).

    launcher: local starts the processes on this machine, hostfile on the hosts of a file by DeepSpeed's launcher over
    ssh, slurm by srun on the nodes of this Slurm job. hostfile: its path. master_address, master_port: where processes
    of several hosts meet; an empty address is the first host's. data: how the stages before training are spread.
    """

    launcher: str
    hostfile: str
    master_address: str
    master_port: int
    processes: int
    threads: int
    ep: int
    device: str
    zero_stage: int
    parallel_baselines: int
    timeout: int
    recompute: Recompute
    heartbeat: int
    compile: bool
    decode_experts: str
    artifacts: str
    runs: str
    wandb: str
    data: DataConfig
    mp: int = 1

    def __post_init__(self) -> None:
        for name in ("processes", "threads", "ep", "mp", "parallel_baselines", "timeout", "heartbeat"):
            if getattr(self, name) < 1:
                raise ValueError(f"runtime.{name}={getattr(self, name)} must be at least 1")
        if self.processes % self.ep:
            raise ValueError(
                f"runtime.ep={self.ep} does not divide runtime.processes={self.processes}; choose one of "
                f"{_divisors(self.processes)}"
            )
        if self.processes // self.ep % self.mp:
            raise ValueError(
                f"runtime.ep={self.ep} times runtime.mp={self.mp} does not divide runtime.processes={self.processes}; "
                f"choose runtime.mp of {_divisors(self.processes // self.ep)}, or {self.ep * self.mp} processes"
            )
        if self.launcher not in ("local", "hostfile", "slurm"):
            raise ValueError(f"runtime.launcher={self.launcher!r} is not one of local, hostfile, slurm")
        if self.launcher == "hostfile" and not self.hostfile:
            raise ValueError(
                "runtime.launcher=hostfile needs runtime.hostfile, a file with a line `name slots=N` a host"
            )
        if self.master_address and not re.fullmatch(r"[0-9A-Za-z:][0-9A-Za-z._:-]*", self.master_address):
            raise ValueError(f"runtime.master_address={self.master_address!r} is not the name or address of a host")
        if not 1 <= self.master_port <= 65535:
            raise ValueError(f"runtime.master_port={self.master_port} must lie in [1, 65535]")
        if self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"runtime.device={self.device!r} is not one of auto, cpu, cuda")
        if self.zero_stage not in (1, 2):
            raise ValueError(
                f"runtime.zero_stage={self.zero_stage}: choose 1 or 2 (without ZeRO DeepSpeed's clip norm leaves "
                "experts out, and stage 3 refuses expert parallelism)"
            )
        if self.decode_experts not in ("auto", "replicated", "sharded"):
            raise ValueError(f"runtime.decode_experts={self.decode_experts!r} is not one of auto, replicated, sharded")
        if self.decode_experts == "sharded" and self.ep == 1:
            raise ValueError(
                "runtime.decode_experts=sharded cuts experts over runtime.ep processes, of which there is 1; set "
                "runtime.processes and runtime.ep, or runtime.decode_experts=replicated"
            )
        if self.wandb not in ("auto", "offline", "online", "disabled"):
            raise ValueError(f"runtime.wandb={self.wandb!r} is not one of auto, offline, online, disabled")


# Of a configuration: the axis of the mesh that cuts a letter, or several, or none
Table = Mapping[str, str | list[str] | None]


def layout_of(table: Table, runtime: RuntimeConfig) -> Layout:
    """The table over the processes: the axis expert has ep of them, model mp, and data takes the rest."""
    cut = {letter: (axes,) if isinstance(axes, str) else tuple(axes) for letter, axes in table.items() if axes}
    sizes = {"data": runtime.processes // (runtime.ep * runtime.mp), "expert": runtime.ep, "model": runtime.mp}
    return Layout(table=cut, sizes=sizes)


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
