"""`make data`: the stages before training, and what they did to the data."""

from eval.records.funnel import load_funnels, text_table
from pipeline.config import ROOT, RunConfig
from pipeline.dag.run import data_run
from pipeline.dag.status import recorded
from pipeline.output import say


def show_data(config: RunConfig) -> None:
    """Run the stages before training and print a table of what each cleaning rule removed."""
    with recorded(ROOT / config.runtime.runs / config.name) as status:
        directory = data_run(config, status)
    say(text_table(load_funnels(directory / "data.json")))
