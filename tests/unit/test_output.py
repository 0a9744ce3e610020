"""A command whose reader has gone ends without complaint, as other commands do."""

import os
import subprocess
import sys

from pipeline.config import ROOT


def test_nobody_reads():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "pipeline", "config", "recipes=smoke"]
    process = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (128 + 13, "")
