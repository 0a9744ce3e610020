"""Translating lines with a finished run: what `make backtranslate` does in bulk."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.batch.config import BatchConfig
from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair, parse_pair
from pipeline.decode.config import DecodeConfig
from pipeline.decode.job import LinesJob
from pipeline.decode.pruning import Pruning
from pipeline.decode.text import Long
from pipeline.decode.workers import TranslatorSpec
from pipeline.jobs.hosts import launch_job
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.schema import build
from pipeline.spelling import suggestion
from pipeline.stage import Artifact, Store

RECORD = "run.json"
PRUNED = "pruned"  # directory of a run's prunings
SHARD_ROWS = 10_000  # lines in memory at once; batches are made of lines of one shard


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run of `make train` to translate with. directory: of its results. decode: how it translated its test sets;
    max_source_tokens: the longest source that it was trained on, tag and end counted. experts: path of the pruning by
    which it translates, or empty."""

    name: str
    commit: str
    pairs: tuple[LangPair, ...]
    model: Artifact
    vocabulary: Artifact
    decode: DecodeConfig
    max_source_tokens: int
    directory: Path = Path()
    experts: str = ""

    @classmethod
    def open(cls, run: str, *, runs: Path, store: Store) -> "FinishedRun":
        """The run of this name below `runs`, or in this directory. Raises ValueError where it cannot be used."""
        path = record_path(run, runs)
        record = json.loads(path.read_text(encoding="utf-8"))
        (system,) = record["systems"]["moe"]
        if "artifacts" not in system:
            raise ValueError(
                f"{path} does not say which artifacts its model is in, as an older version wrote it; run the command "
                "that made it again (make train), which trains nothing anew"
            )
        try:
            model, vocabulary = (store.find(*system["artifacts"][name].split("/")) for name in ("model", "vocabulary"))
        except ValueError as error:
            raise ValueError(f"run {run}: {error} (it was {record['config']['runtime']['artifacts']})") from error
        return cls(
            name=record["name"],
            directory=path.parent,
            commit=record["commit"],
            pairs=tuple(LangPair(of["source"], of["target"]) for of in record["languages"].values()),
            model=model,
            vocabulary=vocabulary,
            decode=build(DecodeConfig, _decode_settings(record), f"{path}: config.decode"),
            max_source_tokens=build(BatchConfig, record["config"]["batch"], f"{path}: config.batch").max_source,
        )

    def record(self) -> dict[str, Any]:
        """run.json, which says how the run was made."""
        record: dict[str, Any] = json.loads((self.directory / RECORD).read_text(encoding="utf-8"))
        return record

    def pruned(self, name: str) -> "FinishedRun":
        """The run with the experts and for the pairs of a pruning, which `make prune` left; itself for an empty name.
        Raises ValueError where it is not there or of another model."""
        if not name:
            return self
        path = self.directory / PRUNED / f"{name}.json"
        if not path.is_file():
            there = sorted(file.stem for file in path.parent.glob("*.json"))
            hint = suggestion(name, there) if there else "; `make prune` makes one"
            raise ValueError(f"experts={name}: run {self.name} has no such pruning{hint}")
        pruning = Pruning.read(path)
        if pruning.model != f"{self.model.stage}/{self.model.key}":
            raise ValueError(
                f"experts={name}: {path} is of model {pruning.model}, and run {self.name} has another by now; make it "
                "again (make prune)"
            )
        pairs = tuple(pair for pair in self.pairs if pair.name in pruning.pairs)
        return replace(self, pairs=pairs, experts=str(path))

    def decode_with(self, given: Mapping[str, Any]) -> DecodeConfig:
        """How it translated its test sets, but for what is given and not None. Raises ValueError."""
        changes = {key: value for key, value in given.items() if value is not None}
        return build(DecodeConfig, {**asdict(self.decode), **changes}, "decode")

    def spec(self, decode: DecodeConfig | None = None, *, long: Long = "split") -> TranslatorSpec:
        """What processes that translate load. decode: by default as it translated its test sets."""
        return TranslatorSpec(
            checkpoints=str(self.model.path / "checkpoints"),
            vocabulary=str(self.vocabulary.path),
            decode=decode or self.decode,
            max_source_tokens=self.max_source_tokens,
            long=long,
            experts=self.experts,
        )

    def pair(self, text: str) -> LangPair:
        """The direction that a user means. Raises ValueError if the run was not trained on it."""
        known = ", ".join(pair.name for pair in self.pairs)
        codes = {code for pair in self.pairs for code in (pair.src, pair.tgt)}
        try:
            found = parse_pair(text, codes)
        except ValueError as error:
            raise ValueError(f"run {self.name}, which translates {known}: {error}") from error
        if found not in self.pairs:
            raise ValueError(
                f"run {self.name} does not translate {found}, but {known}; train one that does "
                f'(make train LANG_PAIRS="{found}"), or choose another direction'
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Translation:
    """One line. skipped: why it has no translation, `empty` or `too_long`; else empty. score: as of `Hypothesis`."""

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
    """A translation of every line, in order, once all are translated; in memory is one shard of them.

    work: directory that an interrupted call leaves for the same call to go on from; `lines` is then not read again.
    The translations do not depend on the number of processes. decode: by default the run's own.
    Raises Stopped or JobFailed.
    """
    from pipeline.decode.drops import say_drops
    from pipeline.decode.shards import LineShard, num_lines, read_lines, write_lines

    source = work / "lines.parquet"
    if not source.exists():
        write_lines(lines, source)
    rows = num_lines(source)
    shards = [
        LineShard(directory=work, start=start, stop=min(start + shard_rows, rows))
        for start in range(0, rows, shard_rows)
    ]
    left = [[shard.start, shard.stop] for shard in shards if not shard.gather()]
    if left:
        job = LinesJob(
            title=f"translate {pair}",
            lines=str(source),
            shards=left,
            target=pair.tgt,
            max_source_tokens=run.max_source_tokens,
            vocabulary=str(run.vocabulary.path),
            checkpoints=str(run.model.path / "checkpoints"),
            out=str(work),
            decode=decode or run.decode,
            runtime=runtime,
            experts=run.experts,
        )
        launch_job("pipeline.decode.lines", asdict(job), directory=work / "log", runtime=runtime, title=job.title)
        say_drops(work / "log", job.title)
    for shard in shards:
        whole = shard.gather()
        assert whole, f"{shard} has {len(shard.records())} records"
        records: dict[int, dict[str, Any]] = shard.records()
        for row, line in enumerate(read_lines(source, shard.start, shard.stop), start=shard.start):
            values = {key: value for key, value in records[row].items() if key != "row"}
            yield Translation(source=line, **values)


def _decode_settings(record: dict[str, Any]) -> dict[str, Any]:
    """Without what versions before 0.2.1 counted a batch by."""
    return {key: value for key, value in record["config"]["decode"].items() if key != "batch_sentences"}


def record_path(run: str, runs: Path) -> Path:
    """Where the record of a run is: by its name below `runs`, or by its directory."""
    if not run:
        raise ValueError("run is empty; give the name of a finished run, a directory below runs/")
    for directory in (runs / run, ROOT / run):
        if (directory / RECORD).is_file():
            return directory / RECORD
    finished = sorted(path.parent.name for path in runs.glob(f"*/{RECORD}"))
    hint = suggestion(run, finished, listing="finished are")
    raise ValueError(f"run={run}: {runs / run} holds no {RECORD}, so there is no finished run{hint}")
