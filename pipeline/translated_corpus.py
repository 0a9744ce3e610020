"""Text that a finished run translated, as a table of rows, and tables laid out as a corpus to train on."""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import MANIFEST, UNNAMED, read_manifest
from pipeline.decode.config import DecodeConfig
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.stage import Artifact, Stage, Store, file_sha256, remove_tree, write_atomically
from pipeline.translation import FinishedRun, Translation, translate_lines

logger = logging.getLogger(__name__)

_TABLE, _COUNTS = "table.parquet", "counts.json"
_UNTRANSLATED = "no_translation"


def check_given(config: Any, remedies: Mapping[str, str]) -> None:
    """Raise ValueError where a command lacks a setting, with its remedy, or where `name` cannot be a source's."""
    for field, remedy in remedies.items():
        if not getattr(config, field):
            raise ValueError(f"{field} is empty; give {remedy}")
    if config.name and UNNAMED.search(config.name):
        raise ValueError(f"name={config.name!r}: a source is named by letters, digits, dots, - and _ alone")


def corpus_name(config: Any, run: FinishedRun, made: str) -> str:
    """The name that the command is given, or one that says what was made of which run."""
    return config.name or UNNAMED.sub("-", f"{made}-{run.name}")


def translated(
    store: Store,
    run: FinishedRun,
    decode: DecodeConfig,
    pair: LangPair,
    lines: Callable[[], Iterator[str]],
    *,
    what: str,
    stage: str,
    identity: Mapping[str, Any],
    inputs: Mapping[str, Artifact],
    runtime: RuntimeConfig,
) -> Artifact:
    """Table of translations and lines, columns by code, with counts; lines without a translation are left out.

    what: the text's name, for messages. identity, inputs: what the text is, for the stage's key.
    """

    def fill(out: Path) -> None:
        from pipeline.corpus.tables import write_table

        work = out / "work"
        work.mkdir(exist_ok=True)
        counts: Counter[str] = Counter(lines=0, rows=0, empty=0, too_long=0, no_translation=0)
        found = translate_lines(run, pair, lines(), work=work, runtime=runtime, decode=decode)
        write_table(_table(pair, found, counts), out / _TABLE)
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

    settings = {"decode": decode.decisive(), "max_source_tokens": run.max_source_tokens}
    slice_ = {"pair": pair.name, **identity, **settings}
    made_from = {"vocabulary": run.vocabulary, "model": run.model, **inputs}
    return store.get(
        Stage(name=stage, version=1, config=slice_, inputs=made_from, run=fill, label=pair.name, resumable=True)
    )


def _table(pair: LangPair, translations: Iterator[Translation], counts: "Counter[str]") -> Any:
    """Rows of the translations that there are. counts: of what becomes of each line."""
    import pyarrow as pa

    from pipeline.corpus.tables import Table

    columns = (pair.tgt, pair.src)

    def batches() -> Iterator[Any]:
        held: list[Translation] = []
        for each in translations:
            fate = each.skipped or ("rows" if each.text.strip() else _UNTRANSLATED)
            counts.update(["lines", fate])
            if fate == "rows":
                held.append(each)
            if len(held) == 1000:
                yield batch(held)
                held = []
        yield batch(held)

    def batch(held: Sequence[Translation]) -> Any:
        sides = [[each.text for each in held], [each.source for each in held]]
        return pa.RecordBatch.from_arrays([pa.array(side, pa.string()) for side in sides], names=list(columns))

    return Table(columns=columns, batches=batches())


def read_text(text: Path) -> Iterator[str]:
    """Lines of a file, compressed or not."""
    from pipeline.corpus.readers.lines import read_blocks

    for block in read_blocks(text):
        yield from block.texts().to_pylist()


def lines_of(pair: LangPair, text: str) -> tuple[Path, str]:
    """A file of lines and its hash. Raises ValueError where there is none."""
    path = ROOT / text
    if not path.is_file():
        raise ValueError(f"text={path} is no file; give one of sentences in {pair.src}, one a line")
    return path, file_sha256(path)


def entry(
    pair: LangPair, split: str, directory: Path, write: Callable[[Path], object], **values: Any
) -> dict[str, Any]:
    """Puts a table of a pair, columns by code, into the directory of a corpus; its entry in the manifest. write: makes
    the Parquet file. values: of the entry beside what the table says."""
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
    """Writes what `translated` made."""
    return lambda path: shutil.copyfile(table.path / _TABLE, path)


def lay_out(out: Path, made: str, fill: Callable[[Path], Mapping[str, Any]]) -> None:
    """A corpus, in place of what the same command made there earlier. made: first line of its manifest. fill: puts
    files into a directory and returns the manifest."""
    fresh = out.with_name(f".{out.name}.partial")
    if fresh.exists():
        remove_tree(fresh)
    fresh.mkdir()
    text = yaml.safe_dump(dict(fill(fresh)), sort_keys=False, allow_unicode=True, width=120)
    (fresh / MANIFEST).write_text(made + text, encoding="utf-8")
    read_manifest(fresh)  # raises ValueError for a name that no corpus can have
    if out.exists():
        remove_tree(out)
    fresh.rename(out)


def check_ours(out: Path, made: str) -> None:
    """Refuse to replace a directory that holds anything but what the same command made."""
    if not out.exists() or not any(out.iterdir()):
        return
    manifest = out / MANIFEST
    ours: set[str] = set()
    if manifest.is_file() and manifest.read_text(encoding="utf-8").startswith(made):
        ours = {MANIFEST, *(path for entry in read_manifest(out).files for path in entry.paths)}
    others = sorted(path.name for path in out.iterdir() if path.name not in ours)
    if others:
        raise ValueError(f"out={out} holds {others[0]}, which this command did not make; choose another directory")


def made_by(run: FinishedRun, decode: DecodeConfig) -> str:
    """What wrote the translations, for a citation."""
    how = f"{decode.search} {decode.hypotheses}"
    return f"run {run.name} (commit {run.commit}, model {run.model.stage}/{run.model.key}, {how})"
