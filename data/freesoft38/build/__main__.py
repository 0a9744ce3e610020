"""`python -m data.freesoft38.build` downloads the packages, makes the corpus and says whether it is as expected."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .corpus import all_languages, open_sources, write_corpus
from .download import HERE, fetch_packages, pinned_packages
from .indexes import fetch_indexes
from .output import Writer, differences, read_results
from .splits import pinned_tests


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    codes = [language.code for language in all_languages()]
    parser = argparse.ArgumentParser(prog="python -m data.freesoft38.build", description=__doc__)
    parser.add_argument("out", type=Path, help="an empty or a new directory for the corpus")
    parser.add_argument("--cache", type=Path, help="where downloads are kept (OUT.downloads)")
    parser.add_argument("--mirror", metavar="URL", help="a Debian mirror to download from, in place of apt")
    parser.add_argument("--packages", type=Path, default=HERE / "packages.tsv", help="other versions (%(default)s)")
    parser.add_argument("--tests", type=Path, default=HERE / "tests.tsv", help="other test sentences (%(default)s)")
    parser.add_argument("--without-descriptions", action="store_true", help="leave out Debian's package descriptions")
    parser.add_argument(
        "--languages", nargs="+", choices=codes, metavar="CODE", help="only these, for a quick try: %(choices)s"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (%(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Build the corpus; return 0 if all is made, also where it differs from the expected one."""
    options = parse_arguments(arguments)
    if options.out.exists() and any(options.out.iterdir()):
        raise ValueError(f"{options.out} is not empty; name a new directory")
    began = time.monotonic()
    cache = options.cache or options.out.with_name(f"{options.out.name}.downloads")
    languages = [
        language for language in all_languages() if not options.languages or language.code in options.languages
    ]
    packages = fetch_packages(pinned_packages(options.packages), cache, options.mirror)
    described = [language.code for language in languages if language.descriptions == "yes"]
    with_descriptions = described and not options.without_descriptions
    indexes = fetch_indexes(described, cache, options.mirror) if with_descriptions else None
    print(f"{sum(map(len, packages.values()))} packages are in {cache}")
    sentences = pinned_tests(options.tests)
    writer = Writer(options.out)
    write_corpus(open_sources(packages, indexes, languages), languages, sentences, writer, options.jobs)
    print(f"written to {options.out} in {time.monotonic() - began:.0f} s; use it by CORPUS={options.out}")
    if options.languages or not options.without_descriptions:
        print(
            "only a build of all languages --without-descriptions has expected results: descriptions change every day"
        )
        return 0
    lines = differences(writer.results, read_results(HERE / "results.tsv"))
    print(f"{len(lines)} files differ from the expected results" if lines else "equal to the expected results")
    for line in lines:
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"error: {error}")
