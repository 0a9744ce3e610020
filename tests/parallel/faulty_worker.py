"""A process of a training job. Process 1 has the fault FAULT, `stop` or `busy`, before step FAULT_STEP."""

import ctypes
import os
import signal

from pipeline.jobs.process import run_process
from pipeline.train.__main__ import train


def work(values, stop):
    from pipeline.train.trainer import Trainer

    step = Trainer._step

    def faulty(trainer, *arguments):
        if trainer.rank == 1 and trainer.progress.step + 1 == int(os.environ["FAULT_STEP"]):
            if os.environ["FAULT"] == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            else:
                ctypes.PyDLL(None).usleep(int(os.environ["FAULT_MICROSECONDS"]))  # with the interpreter's lock held
        return step(trainer, *arguments)

    Trainer._step = faulty
    train(values, stop)


if __name__ == "__main__":
    run_process(work)
