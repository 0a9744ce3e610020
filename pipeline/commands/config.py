"""`make config`: the resolved configuration of a run."""

import yaml

from pipeline.config import RunConfig
from pipeline.output import say


def show_config(config: RunConfig) -> None:
    """Print the configuration as YAML."""
    say(yaml.safe_dump(config.to_json(), sort_keys=False, allow_unicode=True).rstrip())
