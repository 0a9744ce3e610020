"""Builds the corpus freesoft38 from Debian packages: `python -m data.freesoft38.build --help`."""
