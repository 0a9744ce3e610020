"""`python run_on_hosts.py <module> <job.json>` runs a job on its hosts. SIGTERM ends it like `python -m pipeline`."""

import json
import signal
import sys
from pathlib import Path

from pipeline.__main__ import _guarded, _interrupt
from pipeline.jobs.hosts import launch_on_hosts
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

module, file = sys.argv[1], Path(sys.argv[2])
job = json.loads(file.read_text())
runtime = build(RuntimeConfig, job["runtime"])
signal.signal(signal.SIGTERM, _interrupt)
sys.exit(
    _guarded(lambda: launch_on_hosts(module, job, directory=Path(job["out"]) / "log", runtime=runtime, title="train"))
)
