"""`make train`: the whole job, from the corpus to the report."""

from pipeline.config import ROOT, RunConfig
from pipeline.dag.run import train_run
from pipeline.dag.status import recorded


def train(config: RunConfig) -> None:
    """Run every stage, and keep the state of the run in its directory meanwhile."""
    with recorded(ROOT / config.runtime.runs / config.name) as status:
        train_run(config, status)
