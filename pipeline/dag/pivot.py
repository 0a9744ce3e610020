"""The stage `pivot`: test sets that a model translates in two steps, through a third language."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.stage import Stage
from pipeline.dag.system import translating
from pipeline.dag.work import WORK
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import Shard, make_shards
from pipeline.jobs.runtime import RuntimeConfig


def translate_by_pivot(
    rows: Mapping[LangPair, Artifact],
    pivots: Mapping[LangPair, str],
    vocabulary: Artifact,
    model: Artifact,
    *,
    decode: DecodeConfig,
    runtime: RuntimeConfig,
    label: str,
    ensemble: Sequence[Artifact] = (),
) -> Stage:
    """Declare translations of test sets through a third language.

    pivots: that language of each pair.
    ensemble: models that translate together with `model`.
    """
    return Stage(
        name="pivot",
        version=2,
        config={**decode.decisive(bool(ensemble)), "pivots": {pair.name: code for pair, code in pivots.items()}},
        inputs={**translating(vocabulary, model, ensemble), **{pair.name: artifact for pair, artifact in rows.items()}},
        run=partial(_translate, rows, pivots, vocabulary, model, decode, runtime, label, ensemble),
        label=label,
        resumable=True,
    )


def _translate(
    rows: Mapping[LangPair, Artifact],
    pivots: Mapping[LangPair, str],
    vocabulary: Artifact,
    model: Artifact,
    decode: DecodeConfig,
    runtime: RuntimeConfig,
    label: str,
    ensemble: Sequence[Artifact],
    out: Path,
) -> None:
    """Translate all test sets into their pivots, then these translations. A line has the text of its pivot too."""
    from pipeline.corpus.bitext import read_column
    from pipeline.decode.job.starter import run_job, write_test_translations

    def translated(
        step: str, texts: Mapping[LangPair, Iterable[str]], languages: Mapping[LangPair, tuple[str, str]]
    ) -> dict[LangPair, list[Shard]]:
        shards = {
            pair: make_shards(
                out / WORK / step / pair.name, of_pair, source=languages[pair][0], target=languages[pair][1]
            )
            for pair, of_pair in texts.items()
        }
        run_job(
            TranslateJob(
                title=f"translate {label}, {step} step",
                rounds=[[shard for of_pair in shards.values() for shard in of_pair]],
                max_source_tokens=0,
                long="whole",
                vocabulary=str(vocabulary.path),
                checkpoints=str(model.path / "checkpoints"),
                log=str(out / "log" / step),
                decode=decode,
                runtime=runtime,
                ensemble=[str(member.path / "checkpoints") for member in ensemble],
            )
        )
        return shards

    sources = {pair: read_column(artifact.path, "test", "src") for pair, artifact in rows.items()}
    first = translated("first", sources, {pair: (pair.src, pivots[pair]) for pair in rows})
    middle = {pair: [record.get("text", "") for record in _records(of_pair)] for pair, of_pair in first.items()}
    last = translated("second", middle, {pair: (pivots[pair], pair.tgt) for pair in rows})
    for pair, artifact in rows.items():
        at_limit = [bool(record.get("at_limit")) for record in _records(first[pair])]
        write_test_translations(
            last[pair], artifact.path, out / f"{pair.name}.jsonl", pivot=middle[pair], at_limit=at_limit
        )
    shutil.rmtree(out / WORK)


def _records(shards: Iterable[Shard]) -> list[dict[str, Any]]:
    """Return the records of all rows of some shards. A row that was not translated has no `text`."""
    records = {row: record for shard in shards for row, record in shard.records().items()}
    return [records[row] for row in sorted(records)]
