"""The import of DeepSpeed, in a process of its own."""

import subprocess
import sys

from pipeline.config import ROOT

IMPORT = """
import sys, torch
compile = torch.compile
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer  # ZeRO imports Muon when it is built
import pipeline.engine.deepspeed
from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam
assert torch.compile is compile
assert "torch._inductor" not in sys.modules
"""


def test_the_compiler_is_not_loaded_for_an_optimizer_that_nobody_uses():
    process = subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
