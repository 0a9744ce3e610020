"""`python run_on_hosts.py <module> <job.json>`: a job on its hosts, ended by SIGTERM as `python -m pipeline` is."""

import json
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipeline.__main__ import _guarded, _interrupt
from pipeline.parallel.cluster import launch_on_hosts
from pipeline.parallel.config import RuntimeConfig
from pipeline.schema import build

module, file = sys.argv[1], Path(sys.argv[2])
job = json.loads(file.read_text())
runtime = build(RuntimeConfig, job["runtime"])
signal.signal(signal.SIGTERM, _interrupt)
sys.exit(
    _guarded(lambda: launch_on_hosts(module, job, directory=Path(job["out"]) / "log", runtime=runtime, title="train"))
)
