"""A checkpoint of the size of nllb-200-distilled-600M, made by transformers, is imported in little memory."""

import re
import shutil
import subprocess
import sys

import pytest

from pipeline.config import ROOT
from tests.exports import install_or_skip
from tests.imports import ask, corpus_below

MOST = 1.2  # memory of the import, in bytes of the weights

MEASURED = """
import resource, sys, time
from pipeline.__main__ import main
began = time.monotonic()
code = main(sys.argv[1:])
print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "SECONDS", time.monotonic() - began)
sys.exit(code)
"""


def test_an_import_needs_little_more_memory_than_its_largest_tensor(tmp_path, record_property):
    install_or_skip(ROOT)
    if shutil.disk_usage(tmp_path).free < 8 << 30:
        pytest.skip("two copies of the weights need 5 GB of disk")
    ask("tests.checkpoint_worker", {"root": str(tmp_path), "corpus": str(corpus_below(tmp_path)), "full": True})
    weights = (tmp_path / "full" / "model.safetensors").stat().st_size
    assert weights > 2.4e9
    words = ["import", f"FROM={tmp_path}/full", "NAME=full", "LANG_PAIRS=de-en", f"runtime.runs={tmp_path}/runs"]
    words.append(f"runtime.artifacts={tmp_path}/artifacts")
    process = subprocess.run([sys.executable, "-c", MEASURED, *words], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    match = re.search(r"PEAK (\d+) SECONDS ([\d.]+)", process.stdout)
    peak, seconds = int(match[1]), float(match[2])
    print(f"{weights / 1e9:.2f} GB of weights: peak memory {peak / 1e9:.2f} GB, {seconds:.0f} s")
    record_property("peak_bytes", peak)
    record_property("seconds", seconds)
    assert peak < MOST * weights
