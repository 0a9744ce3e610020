"""`make baselines`: the bilingual models of a run, without the multilingual one."""

from pipeline.commands.opening import announce, training_seconds
from pipeline.config import ROOT, RunConfig
from pipeline.dag.baselines import text_table
from pipeline.dag.replacement import check_replacement
from pipeline.dag.run import baselines_run
from pipeline.dag.steps import BASELINE_STEPS
from pipeline.dag.terminal import watched
from pipeline.output import say


def train_baselines(config: RunConfig) -> None:
    """Train and translate the bilingual models and print a table of them; after a search, write search.csv."""
    run = ROOT / config.runtime.runs / config.name
    check_replacement(run, config)
    announce(config, f"bilingual models alone, {config.runtime.parallel_baselines} at a time")
    with watched(config, BASELINE_STEPS) as status:
        status.expect(training=training_seconds(config))  # the unit of the estimates
        baselines, rows = baselines_run(config, status)
    if baselines.search is not None:
        baselines.search.save(run / "search.csv", rows)
    say(text_table(baselines, rows))
