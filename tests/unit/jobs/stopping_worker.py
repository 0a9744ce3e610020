"""A process of a job that works until it is asked to stop. Its job may say that it then fails, goes on or is deaf."""

import json
import os
import signal
import sys
from pathlib import Path

job_file = Path(sys.argv[1])


def stop(*_):
    error = json.loads(job_file.read_text())["error"]
    if error == "endless":
        return
    if error:
        job_file.with_name("rank-0.error").write_text(error)
    os._exit(1 if error else 75)


if json.loads(job_file.read_text())["error"] != "early":
    signal.signal(signal.SIGTERM, stop)
job_file.with_name("pid").write_text(str(os.getpid()))
job_file.with_name("ready").touch()
while True:
    signal.pause()
