"""The tables of README.md and docs, made from the CSVs of bench/results: `python -m bench.published`."""
