"""Where the record of a finished run is, and the settings of the vocabulary that another run takes from it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.spelling import suggestion

RECORD = "run.json"
IMPORTED = "imported_from"  # key of the record of a run that `make import` made
MEMBERS = "ensemble"  # key of a record: the models of `decode.ensemble` that translated its test sets, by name
FROM_RUN = "vocab.from_run"
CHANGES = ("extend", "extend_size", "trim")  # settings of the vocabulary that change the one of the run
SAMPLE = ("sample_lines", "sample_chars", "temperature", "character_coverage", "seed")  # settings of new pieces


def record_path(run: str, runs: Path, root: Path, setting: str = "NAME") -> Path:
    """Return the path of a run's record. Raises ValueError if the run does not exist or has not finished.

    run: its name, or its directory relative to the checkout.
    runs: directory of the results of runs. The run of a sweep also finds those beside the sweep.
    root: the checkout.
    setting: the word or key by which the user named the run, for messages.
    """
    if not run:
        raise ValueError(f"{setting} is empty; give the name of a finished run, a directory below runs/")
    for directory in (runs / run, runs.parent / run, root / run):
        if (directory / RECORD).is_file():
            return directory / RECORD
    finished = sorted(path.parent.name for path in runs.glob(f"*/{RECORD}"))
    hint = suggestion(run, finished, listing="finished are")
    raise ValueError(f"{setting}={run}: {runs / run} holds no {RECORD}, so there is no finished run{hint}")


def imported_from(directory: Path) -> str | None:
    """Return the checkpoint of which `make import` made the run in a directory; None for any other run, or none."""
    record = directory / RECORD
    source: str | None = json.loads(record.read_text(encoding="utf-8")).get(IMPORTED) if record.is_file() else None
    return source


def with_vocabulary_of_run(
    vocab: Mapping[str, Any], overrides: Sequence[str], *, runs: Path, root: Path
) -> dict[str, Any]:
    """Return the settings of the vocabulary of the run that `vocab.from_run` names, in place of the given ones.

    overrides: as the user wrote them.
    Raises ValueError for a run that has not finished, and for an override that contradicts its vocabulary.
    """
    run = vocab["from_run"]
    record = json.loads(record_path(run, runs, root, FROM_RUN).read_text(encoding="utf-8"))
    settings = {**record["config"]["vocab"], "from_run": run, **{key: vocab[key] for key in CHANGES}}
    sampled = SAMPLE if vocab["extend"] else ()
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key in ("vocab", "vocab.shared") and settings["shared"] != vocab["shared"]:
            kind = "one vocabulary for both sides" if settings["shared"] else "a vocabulary for each side"
            raise ValueError(f"{override}: {FROM_RUN}={run} has {kind}; leave one of the two out")
        part, _, name = key.partition(".")
        if part == "vocab" and name in sampled:
            settings[name] = vocab[name]
        elif part == "vocab" and name.partition(".")[0] not in ("", "from_run", "shared", *CHANGES):
            raise ValueError(
                f"{override} has no effect with {FROM_RUN}={run}, which fixes the vocabulary; leave it out"
            )
    return settings
