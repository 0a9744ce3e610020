"""Challenge sets: lines of a test set with the changes of `pipeline.corpus.modifiers`, and the lines themselves.

The stage `challenge` makes the rows from those of a test set. They are translated as those of any other test set.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unicodedata import unidata_version

from eval.records.challenge import PLAIN
from pipeline.config import RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.corpus.modifiers import ALONE, MODIFIERS
from pipeline.dag.artifact import Artifact
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.score_config import CHALLENGE

PairRows = Mapping[LangPair, Artifact]

MOST_LINES = 500  # lines of a test set that are changed, spread evenly over it
MOST_ALONE = 100  # lines of each kind that uses nothing of the test set
KINDS_FILE = "kinds.json"


def challenge_rows(rows: PairRows, store: Store) -> PairRows:
    """Make the rows of the challenge set of a test set."""
    return {pair: store.get(challenge(artifact, pair)) for pair, artifact in rows.items()}


def own_challenge(config: RunConfig, cleaned: PairRows, store: Store) -> dict[str, PairRows]:
    """Make the challenge set of the run's own test sets, by its name; nothing if `score.test_sets` lacks it."""
    return {CHALLENGE: challenge_rows(cleaned, store)} if CHALLENGE in config.score.test_sets else {}


def is_challenge(rows: PairRows) -> bool:
    """Return whether the rows of a test set are those of a challenge set."""
    return any(artifact.stage == CHALLENGE for artifact in rows.values())


def challenge(rows: Artifact, pair: LangPair) -> Stage:
    """Declare the rows of the challenge set of a pair. rows: of a test set."""
    return Stage(
        name=CHALLENGE,
        version=1,
        config={"pair": pair.name, "unicode": unidata_version},
        inputs={"rows": rows},
        run=partial(_write_rows, rows, pair),
        label=pair.name,
    )


def with_kinds(translations: str, rows: Artifact) -> str:
    """Add `kind` and `plain_line` to the translated lines of a challenge set. translations: the lines of the file."""
    marks: list[dict[str, Any]] = json.loads((rows.path / KINDS_FILE).read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in translations.split("\n") if line]
    return "".join(json.dumps(line | mark, ensure_ascii=False) + "\n" for line, mark in zip(lines, marks, strict=True))


def _write_rows(rows: Artifact, pair: LangPair, out: Path) -> None:
    import pyarrow as pa

    from pipeline.corpus.bitext import SCHEMA, read_column, write_bitext

    sources, targets = (read_column(rows.path, "test", side) for side in ("src", "tgt"))
    step = -(-len(sources) // MOST_LINES)
    plain = list(zip(sources[::step], targets[::step], strict=True))
    texts = list(plain)
    marks: list[dict[str, Any]] = [{"kind": PLAIN, "plain_line": number} for number in range(1, len(plain) + 1)]
    for kind, modifier in MODIFIERS.items():
        most = MOST_ALONE if kind in ALONE else MOST_LINES
        for number, (source, target) in enumerate(plain[:most], start=1):
            changed = modifier(source, target, pair, Random(f"{pair.name} {kind} {number}"))
            if changed is not None:
                texts.append(changed)
                marks.append({"kind": kind, "plain_line": number})
    arrays = [pa.array(side, pa.string()) for side in zip(*texts, strict=True)]
    write_bitext(out / "test.arrow", [pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)])
    (out / KINDS_FILE).write_text(json.dumps(marks), encoding="utf-8")
