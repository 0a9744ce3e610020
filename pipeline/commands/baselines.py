"""`make baselines`: the bilingual models of a run, without the multilingual one."""

from pipeline.commands.opening import announce, describe_most_time, seconds_here
from pipeline.config import ROOT, RunConfig
from pipeline.dag.baselines import most_cost, text_table
from pipeline.dag.cleaning import ALL
from pipeline.dag.replacement import check_replacement
from pipeline.dag.run import baselines_run
from pipeline.dag.steps import BASELINE_STEPS
from pipeline.dag.terminal import watched
from pipeline.output import say


def train_baselines(config: RunConfig) -> None:
    """Train and translate the bilingual models and print a table of them; after a search, write search.csv."""
    run = ROOT / config.runtime.runs / config.name
    check_replacement(run, config)
    unit = seconds_here(config)  # of the estimates
    counted = bool(config.baselines.tiers) and ALL not in config.pairs
    announce(
        config,
        f"bilingual models alone, on this machine, {config.runtime.parallel_baselines} at a time",
        describe_most_time(unit * most_cost(config, len(config.pairs)) if unit is not None and counted else None),
    )
    with watched(config, BASELINE_STEPS) as status:
        status.expect(training=unit)
        trained = baselines_run(config, status)
    if trained.models.search is not None:
        trained.models.search.save(run / "search.csv", trained.rows)
    say(text_table(trained.models, trained.rows))
