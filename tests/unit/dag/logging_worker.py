"""A process of a job that logs two lines."""

import logging
from typing import Any

from pipeline.jobs.process import StopRequest, run_process

logger = logging.getLogger("worker")


def log(job: dict[str, Any], stop: StopRequest) -> None:
    logger.info("train moe: step 1")
    logger.warning("warning: the disk is full")


if __name__ == "__main__":
    run_process(log)
