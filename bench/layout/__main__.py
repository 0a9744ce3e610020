"""The command `make bench BENCH=layout`, which compares three ways of tensor parallelism for one Transformer layer.

The ways are this project's partition, torch's DTensor and DeepSpeed's AutoTP layers. Two processes with one thread each
run forward and backward in fp32 on this CPU. All ways compute the same layer, which is checked. They take turns, round
by round. The table has medians of the first process's milliseconds, of wall time and of processor time (which does not
include waiting), and medians of each round's ratios.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from bench.layout import table
from bench.output import device_name, results_file, write_csv
from pipeline.jobs.launch import process_environment
from pipeline.jobs.rendezvous import join_job
from pipeline.model.attention import Attention
from pipeline.model.config import ModelConfig
from pipeline.model.feed_forward import FeedForward
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.parallel.annotations import name_letters, split
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import partition

HEADS = 8
PROCESSES = 2
SIZES = {"dim": 512, "hidden": 2048, "tokens": 512}
Step = Callable[[Tensor], Tensor]


class Twin(nn.Module):
    """Attention and feed-forward network made of `Linear`s, the modules that the peers can cut."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.wi, self.wo = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x_BLM: Tensor) -> Tensor:
        size = x_BLM.shape[-1] // HEADS
        q, k, v = (part(x_BLM).view(*x_BLM.shape[:-1], -1, size).transpose(1, 2) for part in (self.q, self.k, self.v))
        heads = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x_BLM = x_BLM + self.o(heads)
        y_BLM: Tensor = x_BLM + self.wo(self.wi(x_BLM).relu())
        return y_BLM

    def copy(self, attention: Attention, feed_forward: FeedForward) -> None:
        """Copy the whole weights of our modules."""
        for part, weight_MND in ((self.q, attention.wq_MND), (self.k, attention.wk_MND), (self.v, attention.wv_MND)):
            part.weight.data = weight_MND.detach().flatten(1).T.contiguous()
        self.o.weight.data = attention.wo_NDM.detach().flatten(0, 1).T.contiguous()
        self.wi.weight.data = feed_forward.wi_MH.detach().T.contiguous()
        self.wo.weight.data = feed_forward.wo_HM.detach().T.contiguous()


def layer_of(dim: int, hidden: int) -> tuple[Transformer, Attention, FeedForward]:
    config = ModelConfig(dim=dim, ffn_dim=hidden, heads=HEADS, encoder_layers=1, decoder_layers=1, dropout=0.0)
    model = Transformer(config, source_vocabulary=8, target_vocabulary=8, shared=True, max_positions=8)
    initialize(model, 1)
    layer = model.encoder.layers[0]
    return model, layer.self_attention, layer.feed_forward  # type: ignore[return-value]


def ours(dim: int, hidden: int, mesh: Mesh) -> Step:
    model, attention, feed_forward = layer_of(dim, hidden)
    partition(model, mesh)

    def step(x_BLM: Tensor) -> Tensor:
        x_BLM = x_BLM + attention(x_BLM, x_BLM, None)
        y_BLM: Tensor = x_BLM + feed_forward(x_BLM)
        return y_BLM

    return step


def dtensor_parameters(dim: int, hidden: int, mesh: Mesh) -> Step:
    """Return the layer by torch.distributed.tensor.parallel: parameters are DTensors, activations only in a Linear."""
    twin = Twin(dim, hidden)
    twin.copy(*layer_of(dim, hidden)[1:])
    column, row = ("q", "k", "v", "wi"), ("o", "wo")
    plan = {**{name: ColwiseParallel() for name in column}, **{name: RowwiseParallel() for name in row}}
    parallelize_module(twin, mesh.devices["model"], plan)
    return twin


def dtensor_feed_forward(dim: int, hidden: int, mesh: Mesh) -> Step:
    """Return our unchanged feed-forward network alone, with DTensors as parameters and activations."""
    _, _, feed_forward = layer_of(dim, hidden)
    name_letters(feed_forward)
    with mesh.devices:
        feed_forward.wi_MH = nn.Parameter(split(feed_forward.wi_MH, "H", "model"))
        feed_forward.wo_HM = nn.Parameter(split(feed_forward.wo_HM, "H", "model"))

    def step(x_BLM: Tensor) -> Tensor:
        whole_BLM = DTensor.from_local(x_BLM, mesh.devices, [Replicate()] * mesh.devices.ndim, run_check=False)
        y_BLM: DTensor = whole_BLM + feed_forward(whole_BLM)
        return y_BLM.full_tensor()

    return step


def our_feed_forward(dim: int, hidden: int, mesh: Mesh) -> Step:
    model, _, feed_forward = layer_of(dim, hidden)
    partition(model, mesh)
    return lambda x_BLM: x_BLM + feed_forward(x_BLM)


def deepspeed_layers(dim: int, hidden: int, mesh: Mesh) -> Step:
    """Return the layer with the modules that AutoTP puts in place of `Linear`s.

    AutoTP itself would change nothing in our modules, which have no `Linear`.
    """
    import deepspeed
    from deepspeed.module_inject.layers import LinearAllreduce, LinearLayer, set_autotp_mode

    set_autotp_mode(training=True)  # otherwise weights have no gradient
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    twin = Twin(dim, hidden)
    twin.copy(*layer_of(dim, hidden)[1:])
    for name in ("q", "k", "v", "wi"):
        setattr(twin, name, LinearLayer(getattr(twin, name), mesh.group("model"), name=name))
    for name in ("o", "wo"):
        setattr(twin, name, LinearAllreduce(getattr(twin, name), mesh.group("model"), name=name))
    return twin


VARIANTS = {
    "layer, this project": ours,
    "layer, DTensor parameters (torch.distributed.tensor.parallel)": dtensor_parameters,
    "layer, DeepSpeed's AutoTP layers": deepspeed_layers,
    "feed-forward, this project": our_feed_forward,
    "feed-forward, all DTensor": dtensor_feed_forward,
}


def once(step: Step, x_BLM: Tensor) -> tuple[float, float, Tensor, Tensor]:
    """Run a step, and return its milliseconds of processor and wall time, the output, and the gradient of the input."""
    x_BLM = x_BLM.clone().requires_grad_()
    dist.barrier()
    cpu, wall = time.process_time(), time.perf_counter()
    y_BLM = step(x_BLM)
    torch.autograd.backward(y_BLM.sum())
    milliseconds = (time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3
    assert x_BLM.grad is not None
    return *milliseconds, y_BLM.detach(), x_BLM.grad


def work(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    device = torch.device("cpu")
    join_job(device=device, timeout=300)
    letters = {"G": ("data",), "H": ("model",), "N": ("model",)}
    mesh = Mesh.build(Layout(table=letters, sizes={"data": 1, "expert": 1, "model": PROCESSES}), device)
    x_BLM = torch.randn(4, options.tokens // 4, options.dim, generator=torch.Generator().manual_seed(1))
    steps = {name: make(options.dim, options.hidden, mesh) for name, make in VARIANTS.items()}
    for kind in ("layer", "feed-forward"):
        results = [once(step, x_BLM)[2:] for name, step in steps.items() if name.startswith(kind)]
        for result in results[1:]:
            torch.testing.assert_close(result, results[0], rtol=1e-4, atol=1e-4)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            times[name].append(once(step, x_BLM)[:2])
    if dist.get_rank() == 0:
        name = device_name("cpu")
        sizes = {size: getattr(options, size) for size in SIZES}
        rows = table.judge(times, {"device": name, **sizes, "processes": PROCESSES})
        out = results_file("layout", name, options.out)
        write_csv(rows, table.COLUMNS, out)
        print(f"Layouts of one layer on {name}\n\n{table.table(rows)}\n\nwritten to {out}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.layout")
    for name, value in {**SIZES, "rounds": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for layout-<device>.csv; default bench/results")
    options = parser.parse_args()
    if "RANK" in os.environ:
        work(options)
        return
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "bench.layout", *sys.argv[1:]]
        store = Path(directory) / "store"
        started = [
            subprocess.Popen(command, env=process_environment(rank, PROCESSES, 1, store)) for rank in range(PROCESSES)
        ]
        codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"processes ended with {codes}")


if __name__ == "__main__":
    main()
