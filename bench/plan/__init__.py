"""The planner against the machine it runs on: `python -m bench.plan`."""
