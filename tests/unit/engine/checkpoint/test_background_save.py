"""Training waits for no copy from a GPU: the thread that writes does.

No GPU is needed for the order of these calls. That torch pins the memory of such a copy is its own part.
"""

import threading

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.engine.checkpoint import background_save

GPU = torch.device("cuda", 0)


class OnGpu(Tensor):
    """A tensor that says cuda:0 and is here. log: gets each operation with its settings."""

    log: list

    @staticmethod
    def __new__(cls, values, log):
        tensor = Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype, device=GPU)
        tensor.values_here, tensor.log = values, log
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        args[0].log.append((str(operation), str(kwargs.get("device")), kwargs.get("non_blocking")))
        return args[0].values_here.clone()


@pytest.fixture
def world_of_one(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("world_of_one")
def test_copies_from_a_gpu_do_not_block_and_are_awaited_by_the_thread_that_writes(tmp_path, monkeypatch):
    log, began, training = [], threading.Event(), threading.get_ident()

    class Event:
        def __init__(self, device):
            assert device == GPU

        def record(self):
            assert threading.get_ident() == training
            log.append("record")

        def synchronize(self):
            assert threading.get_ident() != training
            began.wait(60)
            log.append("synchronize")

    def write(directory, tensors, *_args, **_settings):
        log.append({name: (tensor.device.type, tensor.tolist()) for name, tensor in tensors.items()})

    monkeypatch.setattr(torch, "Event", Event)
    devices = []
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    monkeypatch.setattr(background_save, "save", write)
    saving = background_save.BackgroundSave()
    values = {"model.x": torch.arange(3.0), "exp_avg.x": torch.ones(2)}
    saving.start(tmp_path / "step-1", ((n, OnGpu(t, log)) for n, t in values.items()), {}, lambda: None)
    copy = ("aten._to_copy.default", "cpu", True)
    assert log == [copy, copy, "record"]
    began.set()
    assert saving.collect(wait=True) is None
    assert devices == [GPU]
    assert log[3:] == ["synchronize", {name: ("cpu", t.tolist()) for name, t in values.items()}]
