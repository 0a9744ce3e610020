"""The configuration of where a run executes. It is not part of a stage's key, because it does not affect a result.

The exception is the type of device, which `pipeline.dag.stages.train` has in its key.
"""

import re
from dataclasses import dataclass

from pipeline.model.config import Recompute
from pipeline.tasks.config import DataConfig


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """Processes, devices, directories and the launcher of a run.

    launcher: `local` starts processes on this machine, `hostfile` on the hosts of a file by DeepSpeed's launcher over
        ssh, `slurm` by srun on the nodes of this Slurm job.
    hostfile: path of that file.
    master_address, master_port: where processes of several hosts meet. An empty address is that of the first host.
    processes: of training and decoding, with one device each.
    threads: of each process.
    ep, mp: how many of the processes share the experts, and how many share a model, if the layout cuts them
        (`layout_of`). Decoding uses ep alone.
    device: cpu, cuda, or auto, which is cuda on a machine with a CUDA device. Each process needs one of its own.
    zero_stage: 1 or 2.
    parallel_baselines: bilingual models that train at the same time, with one process each. Each one takes a GPU of its
        own, and they share them in turn if there are fewer.
    timeout: seconds after which a silent collective fails, and in which processes must join their job.
    heartbeat: seconds of silence after which a process counts as lost.
    recompute: what backward computes again to save memory: none, selective, layers or all (`Transformer.recompute`).
    compile: use torch.compile for training. It agrees with eager up to rounding (`pipeline.model.compilation`).
    deterministic: take kernels that give the same bits each time, which are slower. A CPU needs none.
    decode_experts: the place of experts in decoding. `replicated` puts all of them in every process, so that no process
        waits for another. `sharded` cuts them over `ep` processes, as training does. `auto` cuts them only if the
        memory is too small; `make translate` and `make serve` cut them whenever `ep` is more than 1.
    artifacts, runs: directories of stages' outputs and of finished runs.
    replace: whether the results of another configuration under the same name may be replaced (REPLACE=1).
    wandb: offline, online, disabled, or auto, which is online for a user who is logged in.
    data: how the stages before training are distributed.
    verbose: on a terminal show a line when a stage begins and ends, not one line a step.
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
    verbose: bool = False
    deterministic: bool = False
    replace: bool = False

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


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]
