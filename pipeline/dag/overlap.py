"""Comparison of a further test set with the text that the models of a run were trained on."""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.stage import Stage
from pipeline.dag.store import Store
from pipeline.files import write_atomically
from pipeline.tasks import DataConfig, shard_runner

logger = logging.getLogger(__name__)

OVERLAP = "overlap.json"


def find_overlap(
    store: Store,
    name: str,
    record: Mapping[str, Any],
    rows: Mapping[LangPair, Artifact],
    data: DataConfig,
    ensemble: Sequence[Artifact] = (),
) -> Artifact | None:
    """Compare a test set with the training text of a run. None, with a message, where the store lacks that text.

    record: the content of the run's run.json.
    rows: of the test set.
    ensemble: models that translate together with the run's multilingual one.
    """
    try:
        ledgers = [ledger for models in record["systems"].values() for ledger in models]
        models = [store.find(*ledger["artifacts"]["model"].split("/")) for ledger in ledgers]
        training = _training_rows(store, [*models, *ensemble])
    except ValueError as error:
        logger.warning("warning: test set %s is not compared with the training text: %s", name, error)
        return None
    if not training:
        logger.info("test set %s is not compared with training text, because the model was imported", name)
        return None
    return store.get(_overlap(name, rows, training, data))


def read_overlap(artifact: Artifact | None) -> dict[str, Any]:
    """Return the counts (`pipeline.corpus.cleaning.overlap.Overlap`) by pair; nothing without an artifact."""
    if artifact is None:
        return {}
    counts: dict[str, Any] = json.loads((artifact.path / OVERLAP).read_text(encoding="utf-8"))
    return counts


def _training_rows(store: Store, models: Sequence[Artifact]) -> list[Artifact]:
    """Return the rows that some models were trained on, without those of models whose weights they took."""
    encoded = {artifact.key: artifact for model in models for artifact in store.inputs(model).values()}
    rows = [store.inputs(artifact)["bitext"] for artifact in encoded.values() if artifact.stage == "encode"]
    return list({artifact.key: artifact for artifact in rows}.values())


def _overlap(name: str, rows: Mapping[LangPair, Artifact], training: Sequence[Artifact], data: DataConfig) -> Stage:
    return Stage(
        name="overlap",
        version=1,
        config={"unicode": unidata_version},
        inputs={
            **{f"rows {pair.name}": artifact for pair, artifact in rows.items()},
            **{f"training {number}": artifact for number, artifact in enumerate(training)},
        },
        run=partial(_write, name, rows, training, data),
        label=name,
    )


def _write(
    name: str, rows: Mapping[LangPair, Artifact], training: Sequence[Artifact], data: DataConfig, out: Path
) -> None:
    from pipeline.corpus.bitext import num_rows
    from pipeline.corpus.cleaning.overlap import count_overlap

    paths = [artifact.path for artifact in training]
    run = shard_runner(data, sum(num_rows(path, "train") for path in paths), out / "log", f"overlap {name}")
    counts = count_overlap({pair.name: artifact.path for pair, artifact in rows.items()}, paths, run, out)
    write_atomically(out / OVERLAP, json.dumps(counts, indent=1) + "\n")
