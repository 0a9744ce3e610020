"""OpusFilter with its own configuration: `python -m bench.data.peer_opusfilter job.json`, in OpusFilter's environment.

The command prints the processor seconds of OpusFilter's steps as JSON, without imports and checks before them.
"""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from opusfilter.opusfilter import OpusFilter

SIDES = ("src", "tgt")


def configuration(job: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that users of OpusFilter write in YAML.

    OpusFilter removes rows at its limit of the length ratio, and we keep them, so its limit is a little higher.
    """
    read = list(job["inputs"])
    steps: list[dict[str, Any]] = []
    if job["normalise"]:
        clean = [f"normal.{side}" for side in SIDES]
        normal = {"inputs": read, "outputs": clean, "preprocessors": [{"WhitespaceNormalizer": {}}]}
        steps.append({"type": "preprocess", "parameters": normal})
        read = clean
    filters = [
        {"LengthFilter": {"min_length": 1, "max_length": job["max_chars"], "unit": "char"}},
        {"LengthRatioFilter": {"threshold": job["max_length_ratio"] + 1e-9, "unit": "char"}},
        {"SimilarityFilter": {"threshold": 1}},
        {"AlphabetRatioFilter": {"threshold": job["min_letters"], "exclude_whitespace": True}},
    ]
    if job["nearest"]:
        filters.append({"NonZeroNumeralsFilter": {"threshold": job["min_digit_overlap"]}})
        filters.append({"TerminalPunctuationFilter": {}})
        if all(len(scripts) == 1 for scripts in job["scripts"]):  # OpusFilter knows one script for each language
            scripts = [script for (script,) in job["scripts"]]
            filters.append({"CharacterScoreFilter": {"scripts": scripts, "thresholds": [job["min_script"]] * 2}})
    filtered, kept = ([f"{name}.{side}" for side in SIDES] for name in ("filtered", "kept"))
    steps.append({"type": "filter", "parameters": {"inputs": read, "outputs": filtered, "filters": filters}})
    steps.append({"type": "remove_duplicates", "parameters": {"inputs": filtered, "outputs": kept}})
    return {"common": {"output_directory": job["directory"]}, "steps": steps}


def main(path: Path) -> None:
    logging.basicConfig(level=logging.WARNING)
    opusfilter = OpusFilter(configuration(json.loads(path.read_text(encoding="utf-8"))))
    start = time.process_time()
    opusfilter.execute_steps()
    print(json.dumps({"seconds": time.process_time() - start}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
