"""Benchmark of the planner against the machine that it runs on: `python -m bench.plan`."""
