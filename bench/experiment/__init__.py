"""The experiment of docs/experiment.md in parts: results of its runs, small enough to commit, and one report of all."""
