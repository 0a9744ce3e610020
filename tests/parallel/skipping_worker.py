"""The worker of training with bad steps, which BABELSHARD_WRONG defines in JSON.

factors: by step, the factor of the last process's loss, which may be NaN.
loss_scale: the initial one of fp16.
"""

import json
import os

from pipeline.engine import deepspeed
from pipeline.jobs.process import run_process
from pipeline.train import trainer
from pipeline.train.__main__ import train

wrong = json.loads(os.environ["BABELSHARD_WRONG"])
last = os.environ["RANK"] == str(int(os.environ["WORLD_SIZE"]) - 1)
seed_group, backward = trainer.seed_group, deepspeed.Engine.backward
now = {"step": 0}


def noting_the_step(seed, step, group):
    now["step"] = step
    seed_group(seed, step, group)


def blown_up(engine, loss):
    backward(engine, loss * float(wrong.get("factors", {}).get(str(now["step"]), 1.0)) if last else loss)


if __name__ == "__main__":
    trainer.seed_group, deepspeed.Engine.backward = noting_the_step, blown_up
    deepspeed.INITIAL_LOSS_SCALE = wrong.get("loss_scale", deepspeed.INITIAL_LOSS_SCALE)
    run_process(train)
