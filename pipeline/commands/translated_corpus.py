"""The part that `make backtranslate` and `make distill` share: translate text, and lay it out as a corpus."""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import MANIFEST, UNNAMED, read_manifest
from pipeline.dag.artifact import Artifact
from pipeline.dag.store import Store
from pipeline.dag.translated_lines import translated_lines
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import make_shards
from pipeline.files import file_sha256, remove_tree, write_atomically
from pipeline.finished_run import FinishedRun
from pipeline.jobs.runtime import RuntimeConfig

logger = logging.getLogger(__name__)

_TABLE, _COUNTS = "table.parquet", "counts.json"
_UNTRANSLATED = "no_translation"
_WORDS = {"run": "NAME", "pairs": "LANG_PAIRS"}  # settings whose word of `make` is not their own name
SHARD_ROWS = 10_000  # lines in memory at once; batches are made of lines of one shard


def check_given(config: Any, remedies: Mapping[str, str]) -> None:
    """Raise ValueError where a command lacks a setting, with its remedy, or where `name` cannot be a source's."""
    for field, remedy in remedies.items():
        if not getattr(config, field):
            raise ValueError(f"{_WORDS.get(field, field.upper())} is empty; give {remedy}")
    if config.name and UNNAMED.search(config.name):
        raise ValueError(f"name={config.name!r}: a source is named by letters, digits, dots, - and _ alone")


def corpus_name(config: Any, run: FinishedRun, prefix: str) -> str:
    """Return the name that the user gives, or a prefix and the name of the run."""
    return config.name or UNNAMED.sub("-", f"{prefix}-{run.name}")


def translated(
    store: Store,
    run: FinishedRun,
    decode: DecodeConfig,
    pair: LangPair,
    lines: Callable[[], Iterator[str]],
    *,
    what: str,
    stage: Literal["backtranslate", "distill"],
    identity: Mapping[str, Any],
    inputs: Mapping[str, Artifact],
    runtime: RuntimeConfig,
) -> Artifact:
    """Make a table of translations and their lines, with a column for each language; untranslated lines are left out.

    what: the text's name, for messages.
    identity, inputs: the part of the stage's key that stands for the text.
    """

    def fill(out: Path) -> None:
        from pipeline.corpus.tables import write_table

        work = out / "work"
        work.mkdir(exist_ok=True)
        counts: Counter[str] = Counter(lines=0, rows=0, empty=0, too_long=0, no_translation=0)
        translations = translate_lines(run, pair, lines(), work=work, runtime=runtime, decode=decode)
        write_table(_table(pair, translations, counts), out / _TABLE)
        if not counts["rows"]:
            fates = ", ".join(f"{fate} {number}" for fate, number in counts.items() if fate not in ("lines", "rows"))
            raise ValueError(
                f"{what}: none of its {counts['lines']} lines has a translation into {pair.tgt} ({fates}); "
                f"is it text in {pair.src}, one sentence a line?"
            )
        write_atomically(out / _COUNTS, json.dumps(counts))
        remove_tree(work)
        logger.info(
            "%s: %d of %d lines translated; left out: %d empty, %d of more than %d tokens, %d without a translation",
            *(pair, counts["rows"], counts["lines"], counts["empty"], counts["too_long"], run.max_source_tokens),
            counts[_UNTRANSLATED],
        )

    return store.get(
        translated_lines(
            stage,
            pair,
            run.vocabulary,
            run.model,
            text=identity,
            text_inputs=inputs,
            decode=decode,
            max_source_tokens=run.max_source_tokens,
            run=fill,
            ensemble=run.ensemble,
        )
    )


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The translation of one line. score: as in `Hypothesis`. skipped: empty, or `empty` or `too_long` without one."""

    source: str
    text: str = ""
    score: float = 0.0
    skipped: str = ""


def translate_lines(
    run: FinishedRun,
    pair: LangPair,
    lines: Iterable[str],
    *,
    work: Path,
    runtime: RuntimeConfig,
    decode: DecodeConfig | None = None,
    shard_rows: int = SHARD_ROWS,
) -> Iterator[Translation]:
    """Yield the translation of every line, in order, once all are translated. One shard is in memory at a time.

    The translations do not depend on the number of processes.
    work: directory from which the same call continues after an interruption; it then does not read `lines` again.
    decode: by default the run's own.
    Raises Stopped or JobFailed.
    """
    from pipeline.decode.job.starter import run_job

    shards = make_shards(work, lines, source=pair.src, target=pair.tgt, rows=shard_rows)
    job = TranslateJob(
        title=f"translate {pair}",
        rounds=[[shard] for shard in shards],
        max_source_tokens=run.max_source_tokens,
        long="skip",
        vocabulary=str(run.vocabulary.path),
        checkpoints=str(run.model.path / "checkpoints"),
        log=str(work / "log"),
        decode=decode or run.decode,
        runtime=runtime,
        experts=run.experts,
        ensemble=[str(member.path / "checkpoints") for member in run.ensemble],
    )
    run_job(job)
    for shard in shards:
        records = shard.records()
        for row, line in enumerate(shard.texts(), start=shard.start):
            values = {key: value for key, value in records[row].items() if key in ("text", "score", "skipped")}
            yield Translation(source=line, **values)


def _table(pair: LangPair, translations: Iterator[Translation], counts: "Counter[str]") -> Any:
    """Return the table of the translated lines. counts: is filled with the number of lines by their fate."""
    import pyarrow as pa

    from pipeline.corpus.tables import Table

    columns = (pair.tgt, pair.src)

    def batches() -> Iterator[Any]:
        rows: list[Translation] = []
        for line in translations:
            fate = line.skipped or ("rows" if line.text.strip() else _UNTRANSLATED)
            counts.update(["lines", fate])
            if fate == "rows":
                rows.append(line)
            if len(rows) == 1000:
                yield batch(rows)
                rows = []
        yield batch(rows)

    def batch(rows: Sequence[Translation]) -> Any:
        sides = [[line.text for line in rows], [line.source for line in rows]]
        return pa.RecordBatch.from_arrays([pa.array(side, pa.string()) for side in sides], names=list(columns))

    return Table(columns=columns, batches=batches())


def read_text(text: Path) -> Iterator[str]:
    """Yield the lines of a file, compressed or not."""
    from pipeline.corpus.readers.lines import read_blocks

    for block in read_blocks(text):
        yield from block.texts().to_pylist()


def lines_of(pair: LangPair, text: str) -> tuple[Path, str]:
    """Return the path of a file of lines, and its hash. Raises ValueError where there is no file."""
    path = ROOT / text
    if not path.is_file():
        raise ValueError(f"text={path} is no file; give one of sentences in {pair.src}, one a line")
    return path, file_sha256(path)


def entry(
    pair: LangPair, split: str, directory: Path, write: Callable[[Path], object], **values: Any
) -> dict[str, Any]:
    """Put a table of a pair into the directory of a corpus, and return its entry of the manifest.

    write: writes the Parquet file, with a column for each language.
    values: further values of the entry.
    """
    from pipeline.corpus.tables import group_rows

    name = ".".join((values.get("name", split), pair.name, "parquet"))
    write(directory / name)
    return {
        "split": split,
        "path": name,
        "format": "parquet",
        "pair": f"{pair.src}:{pair.tgt}",
        "columns": {code: code for code in (pair.src, pair.tgt)},
        **values,
        "sha256": file_sha256(directory / name),
        "rows": sum(group_rows(directory / name)),
    }


def copy_of(table: Artifact) -> Callable[[Path], object]:
    """Return a function that writes a table of `translated` to a path."""
    return lambda path: shutil.copyfile(table.path / _TABLE, path)


def lay_out(out: Path, heading: str, fill: Callable[[Path], Mapping[str, Any]]) -> None:
    """Lay out a corpus, in place of one that the same command made there earlier.

    heading: first line of the manifest.
    fill: puts the files into a directory and returns the manifest.
    """
    fresh = out.with_name(f".{out.name}.partial")
    if fresh.exists():
        remove_tree(fresh)
    fresh.mkdir()
    text = yaml.safe_dump(dict(fill(fresh)), sort_keys=False, allow_unicode=True, width=120)
    (fresh / MANIFEST).write_text(heading + text, encoding="utf-8")
    read_manifest(fresh)  # raises ValueError for a name that no corpus can have
    if out.exists():
        remove_tree(out)
    fresh.rename(out)


def check_ours(out: Path, heading: str) -> None:
    """Raise ValueError if the directory holds a file that the command with this heading did not make."""
    if not out.exists() or not any(out.iterdir()):
        return
    manifest = out / MANIFEST
    replaceable: set[str] = set()
    if manifest.is_file() and manifest.read_text(encoding="utf-8").startswith(heading):
        replaceable = {MANIFEST, *(path for entry in read_manifest(out).files for path in entry.paths)}
    foreign = sorted(path.name for path in out.iterdir() if path.name not in replaceable)
    if foreign:
        raise ValueError(f"out={out} holds {foreign[0]}, which this command did not make; choose another directory")


def made_by(run: FinishedRun, decode: DecodeConfig) -> str:
    """Return the run, model and search that wrote the translations, for a citation."""
    how = f"{decode.search} {decode.hypotheses}"
    if decode.choose == "mbr":
        how += f", minimum Bayes risk by {decode.utility}"
    if run.ensemble:
        models = ", ".join(f"{member.stage}/{member.key}" for member in run.ensemble)
        how += f", {decode.combine} ensemble with {models}"
    return f"run {run.name} (commit {run.commit}, model {run.model.stage}/{run.model.key}, {how})"
