"""A process of a job that writes what it was given: variables of devices and networks, its place, and its runtime."""

import json
import os
import sys
from pathlib import Path

job_file = Path(sys.argv[1])
names = (
    *("CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE"),
)
values = {name: os.environ.get(name) for name in names}
values["runtime"] = json.loads(job_file.read_text(encoding="utf-8"))["runtime"]
job_file.with_name(f"given-{os.environ['RANK']}.json").write_text(json.dumps(values), encoding="utf-8")
