"""A process of a training job that is asked to stop in a validation: while it translates, or while a command scores."""

import os
import signal
from pathlib import Path

from pipeline.jobs.process import run_process
from pipeline.train.__main__ import train


def work(values, stop):
    from pipeline.train import sample_score

    search, run = sample_score.search, sample_score.scores_unless_stopped

    def stopping(*arguments):
        translations = search(*arguments)
        if os.environ["BABELSHARD_STOP"] == "translations" and os.environ["RANK"] == "1":
            signal.raise_signal(signal.SIGTERM)
        return translations

    def waiting(name, command, sentences, stop):
        def after_the_program_has_begun():
            if Path(command.split()[-1]).exists():
                signal.raise_signal(signal.SIGTERM)
            return stop()

        return run(name, command, sentences, after_the_program_has_begun)

    sample_score.search, sample_score.scores_unless_stopped = stopping, waiting
    train(values, stop)


if __name__ == "__main__":
    run_process(work)
