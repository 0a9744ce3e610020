"""The commands of `python -m pipeline`, one module each; `table.py` lists all of them."""
