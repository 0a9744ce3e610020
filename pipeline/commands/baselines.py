"""`make baselines`: the bilingual models of a run, without the multilingual one."""

from pipeline.config import ROOT, RunConfig
from pipeline.dag.baselines import text_table
from pipeline.dag.run import baselines_run
from pipeline.dag.status import recorded
from pipeline.output import say


def train_baselines(config: RunConfig) -> None:
    """Train and translate the bilingual models and print a table of them."""
    with recorded(ROOT / config.runtime.runs / config.name) as status:
        baselines, rows = baselines_run(config, status)
    say(text_table(baselines, rows))
