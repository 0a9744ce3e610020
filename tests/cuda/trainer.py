"""The training loop of one process, on the impostor or on the CPU of a process."""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist

from pipeline.parallel.layout import layout_of
from pipeline.parallel.mesh import Mesh
from pipeline.train import measure
from tests.cuda.impostor import CUDA, Impostor


def run_job(job, device):
    """Run a training job to its end, and return the places where the host waited.

    A device of `cuda` is for a process of the impostor.
    """
    if not dist.is_initialized():
        os.environ["LOCAL_RANK"] = "0"
        dist.init_process_group("gloo", init_method=f"file://{job.out}.store", rank=0, world_size=1)
    from pipeline.train.trainer import Trainer

    measure.PEAK_SIZE["cuda"] = 64  # 8192 is for a GPU
    context = Impostor() if device == "cuda" else nullcontext()
    with context:
        mesh = Mesh.build(layout_of(job.layout, job.runtime), CUDA if device == "cuda" else torch.device("cpu"))
        Trainer(job, mesh, stop=False).run()
        return dict(context.counts.waits) if device == "cuda" else {}
