"""`make data`: the stages before training, and what they did to the data."""

from eval.records.funnel import load_funnels, text_table
from pipeline.commands.opening import announce
from pipeline.commands.origin import find_origin
from pipeline.config import ROOT, RunConfig
from pipeline.dag.replacement import ON_DATA, check_replacement
from pipeline.dag.run import data_run
from pipeline.dag.steps import DATA_STEPS
from pipeline.dag.terminal import watched
from pipeline.output import say


def show_data(config: RunConfig) -> None:
    """Run the stages before training and print a table of what each cleaning rule removed."""
    check_replacement(ROOT / config.runtime.runs / config.name, config, ON_DATA)
    origin = find_origin(config)
    announce(config)
    with watched(config, DATA_STEPS) as status:
        directory = data_run(config, status, origin)
    say(text_table(load_funnels(directory / "data.json")))
