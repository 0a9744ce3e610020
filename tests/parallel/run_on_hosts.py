"""`python run_on_hosts.py <module> <job.json>` runs a job on its hosts. SIGTERM ends it like `python -m pipeline`."""

import json
import sys
from pathlib import Path

from pipeline.ending import handle_signals, run_to_end
from pipeline.jobs.hosts import launch_on_hosts
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build

module, file = sys.argv[1], Path(sys.argv[2])
job = json.loads(file.read_text())
runtime = build(RuntimeConfig, job["runtime"])
handle_signals()
sys.exit(
    run_to_end(lambda: launch_on_hosts(module, job, directory=Path(job["out"]) / "log", runtime=runtime, title="train"))
)
