"""Back-translation: monolingual text of a language, translated by a finished run, becomes a corpus whose target is real
and whose source is not (Sennrich et al., arXiv:1511.06709); its tag says so (Caswell et al., arXiv:1906.06442)."""

import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.config import ROOT, compose_tree
from pipeline.corpus.languages import LangPair
from pipeline.corpus.manifest import MANIFEST, read_manifest
from pipeline.decode.config import DecodeConfig
from pipeline.parallel.cluster import check_launcher
from pipeline.parallel.config import RuntimeConfig
from pipeline.schema import build
from pipeline.stage import Artifact, Stage, Store, check_writable, file_sha256, remove_tree, write_atomically
from pipeline.translation import FinishedRun, Translation, translate_lines

logger = logging.getLogger(__name__)

TAG = "bt"
MADE = "# Made by `make backtranslate`, which may replace it.\n"
_TABLE, _COUNTS = "table.parquet", "counts.json"
_UNTRANSLATED = "no_translation"
_UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")  # what no name of a source has


@dataclass(frozen=True, kw_only=True)
class BacktranslationConfig:
    """What configs/backtranslation.yaml says. Paths are absolute or relative to the root of the repository."""

    run: str
    pairs: list[str]
    text: str
    licence: str
    citation: str
    out: str
    name: str
    decode: dict[str, Any]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        remedies = {
            "run": "the name of a finished run, a directory below runs/",
            "pairs": "the directions to translate, such as pairs=[en-de]",
            "text": "a file of one sentence a line",
            "licence": "that of the text, which the corpus will have too, such as licence=CC0-1.0",
            "out": "the directory of the corpus to make",
        }
        for name, remedy in remedies.items():
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; give {remedy}")
        if self.name and _UNNAMED.search(self.name):
            raise ValueError(f"name={self.name!r}: a source is named by letters, digits, dots, - and _ alone")


def load_backtranslation(overrides: Sequence[str]) -> BacktranslationConfig:
    """The configuration of `make backtranslate`. Raises ValueError with what to change."""
    return build(BacktranslationConfig, compose_tree("backtranslation", overrides))


def back_translate(config: BacktranslationConfig) -> Path:
    """Translate the text and lay out the corpus in the directory `out`, which is returned."""
    check_launcher(config.runtime)
    store = Store(ROOT / config.runtime.artifacts)
    run = FinishedRun.open(config.run, runs=ROOT / config.runtime.runs, store=store)
    pairs = _pairs(config.pairs, run)
    decode = run.decode_with(config.decode)
    text, out = ROOT / config.text, ROOT / config.out
    if not text.is_file():
        raise ValueError(f"text={text} is no file; give one of sentences in {pairs[0].src}, one a line")
    check_writable(out.parent, "out")
    check_ours(out)
    sha256 = file_sha256(text)
    tables = {pair: _translate(config, store, run, decode, pair, text, sha256) for pair in pairs}
    lay_out(config, run, decode, tables, out)
    if not store.ran:
        logger.info("nothing to translate: all is as it was")
    logger.info("corpus: %s; to train with it: corpus.add=[%s]", config.out, config.out)
    return out


def _pairs(texts: Sequence[str], run: FinishedRun) -> list[LangPair]:
    pairs = [run.pair(text) for text in texts]
    if len({pair.src for pair in pairs}) > 1 or len(set(pairs)) < len(pairs):
        raise ValueError(f"pairs={', '.join(texts)}: name each once, all from the one language that the text is in")
    return pairs


def _translate(
    config: BacktranslationConfig,
    store: Store,
    run: FinishedRun,
    decode: DecodeConfig,
    pair: LangPair,
    text: Path,
    sha256: str,
) -> Artifact:
    """Table of translations and lines, columns by code, with counts."""

    def fill(out: Path) -> None:
        from pipeline.corpus.tables import write_table

        work = out / "work"
        work.mkdir(exist_ok=True)
        counts: Counter[str] = Counter(lines=0, rows=0, empty=0, too_long=0, no_translation=0)
        found = translate_lines(run, pair, _lines(text), work=work, runtime=config.runtime, decode=decode)
        write_table(_table(pair, found, counts), out / _TABLE)
        if not counts["rows"]:
            fates = ", ".join(f"{fate} {number}" for fate, number in counts.items() if fate not in ("lines", "rows"))
            raise ValueError(
                f"{text}: none of its {counts['lines']} lines has a translation into {pair.tgt} ({fates}); "
                f"is it text in {pair.src}, one sentence a line?"
            )
        write_atomically(out / _COUNTS, json.dumps(counts))
        remove_tree(work)
        logger.info(
            "%s: %d of %d lines translated; left out: %d empty, %d of more than %d tokens, %d without a translation",
            *(pair, counts["rows"], counts["lines"], counts["empty"], counts["too_long"], run.max_source_tokens),
            counts[_UNTRANSLATED],
        )

    settings = decode.decisive()
    slice_ = {"pair": pair.name, "text": sha256, "decode": settings, "max_source_tokens": run.max_source_tokens}
    inputs = {"vocabulary": run.vocabulary, "model": run.model}
    return store.get(
        Stage(name="backtranslate", version=1, config=slice_, inputs=inputs, run=fill, label=pair.name, resumable=True)
    )


def _lines(text: Path) -> Iterator[str]:
    from pipeline.corpus.readers.lines import read_blocks

    for block in read_blocks(text):
        yield from block.texts().to_pylist()


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


def lay_out(
    config: BacktranslationConfig,
    run: FinishedRun,
    decode: DecodeConfig,
    tables: Mapping[LangPair, Artifact],
    out: Path,
) -> None:
    """The corpus, in place of what this command made there earlier."""
    from pipeline.corpus.tables import group_rows

    fresh = out.with_name(f".{out.name}.partial")
    if fresh.exists():
        remove_tree(fresh)
    fresh.mkdir()
    entries = []
    for pair, table in tables.items():
        name = f"train.{pair.tgt}-{pair.src}.parquet"
        shutil.copyfile(table.path / _TABLE, fresh / name)
        entries.append(
            {
                "split": "train",
                "path": name,
                "format": "parquet",
                "pair": f"{pair.tgt}:{pair.src}",
                "columns": {code: code for code in (pair.tgt, pair.src)},
                "tag": TAG,
                "sha256": file_sha256(fresh / name),
                "rows": sum(group_rows(fresh / name)),
            }
        )
    languages = ", ".join(pair.tgt for pair in tables)
    source = next(iter(tables)).src
    how = f"{decode.search} {decode.hypotheses}"
    by = f"run {run.name} (commit {run.commit}, model {run.model.stage}/{run.model.key}, {how})"
    manifest = {
        "name": config.name or _UNNAMED.sub("-", f"backtranslated-{run.name}"),
        "title": f"Text in {source} ({Path(config.text).name}) with back-translations into {languages}",
        "licence": config.licence,
        "citation": f"{config.citation or Path(config.text).name}; its translations into {languages} are by {by}",
        "files": entries,
    }
    text = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=120)
    (fresh / MANIFEST).write_text(MADE + text, encoding="utf-8")
    read_manifest(fresh)  # raises ValueError for a name that no corpus can have
    if out.exists():
        remove_tree(out)
    fresh.rename(out)


def check_ours(out: Path) -> None:
    """Refuse to replace a directory that holds anything but what this command made."""
    if not out.exists() or not any(out.iterdir()):
        return
    manifest = out / MANIFEST
    ours: set[str] = set()
    if manifest.is_file() and manifest.read_text(encoding="utf-8").startswith(MADE):
        ours = {MANIFEST, *(path for entry in read_manifest(out).files for path in entry.paths)}
    others = sorted(path.name for path in out.iterdir() if path.name not in ours)
    if others:
        raise ValueError(f"out={out} holds {others[0]}, which this command did not make; choose another directory")
