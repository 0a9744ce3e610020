"""runtime.deterministic reaches torch before CUDA starts, and training has no operation that torch then refuses.

tests/parallel/test_resume.py trains with it, and tests/cuda/test_engine.py watches the steps of the engine.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.config import ROOT, load_config
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from tests.cuda.counting import is_refused
from tests.gates import GATES, moe_of
from tests.plans import model_of, workload_of
from tests.unit.plan.test_parts import batch_of

PROCESS = """
import json, os, sys
import torch
from pipeline.jobs.device import Place
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

Place.take(build(RuntimeConfig, json.loads(sys.argv[1])), trains=sys.argv[2] == "trains")
on, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
state = {
    "on": on,
    "strict": on and not warns,
    "cudnn": torch.backends.cudnn.deterministic,
    "workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
}
print(json.dumps(state))
"""


def state(deterministic, what, **variables):
    """Return the settings of torch in a process that has taken its place."""
    runtime = replace(load_config(["recipes=smoke"]).runtime, deterministic=deterministic)
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    environment = {key: value for key, value in os.environ.items() if key != "CUBLAS_WORKSPACE_CONFIG"}
    command = [sys.executable, "-c", PROCESS, json.dumps(asdict(runtime)), what]
    result = subprocess.run(
        command, env={**environment, **place, **variables}, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def test_a_process_takes_what_torch_offers():
    chosen = {"strict": True, "on": True, "cudnn": True, "workspace": ":4096:8"}
    assert state(True, "trains") == chosen
    assert state(True, "trains", CUBLAS_WORKSPACE_CONFIG=":16:8") == {**chosen, "workspace": ":16:8"}
    assert state(True, "translates") == {**chosen, "strict": False}
    assert state(False, "trains") == {"strict": False, "on": False, "cudnn": False, "workspace": None}


class Refused(TorchDispatchMode):
    """Collects the operations for which torch has no deterministic kernel on CUDA."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if is_refused(function, args):
            self.seen.add(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_refused_operations_are_seen():
    with Refused() as mode:
        torch.ones(3).cumsum(0)
        torch.ones(3, dtype=torch.int64).cumsum(0)
        torch.bincount(torch.tensor([1]))
    assert mode.seen == {"cumsum"}


@pytest.mark.parametrize("gate", GATES)
def test_no_gate_trains_by_an_operation_that_is_refused(gate):
    workload = workload_of(model=model_of(moe_of(gate)))
    sizes = {"source_vocabulary": workload.source_vocabulary, "target_vocabulary": workload.target_vocabulary}
    model = Transformer(workload.model, **sizes, shared=False, max_positions=24)
    initialize(model, seed=1)
    with Refused() as mode:
        losses = model(batch_of(workload), label_smoothing=0.1)
        losses.share(target_tokens=1, nonempty_groups=1).backward()
    assert not mode.seen
