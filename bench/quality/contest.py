"""The running of the contest: entries are trained, translated and scored one after another.

What is finished lies below the directory of the contest and is not repeated.
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.output import origin
from bench.quality.clock import MARKS, mark_name
from bench.quality.systems import INITIAL, OWN, Entry
from bench.quality.text import Text, prepare_text
from bench.train.contenders import OURS
from bench.train.contest import ENVIRONMENTS, environment, not_installed, python_of
from eval.score.significance import resample
from pipeline.config import ROOT, RunConfig
from pipeline.decode.job.jobs import TranslateJob
from pipeline.decode.job.shards import make_shards
from pipeline.decode.job.starter import run_job
from pipeline.files import write_atomically
from pipeline.train.job import TrainJob
from pipeline.train.trainer import CHECKPOINTS

logger = logging.getLogger(__name__)

START = 900.0  # seconds that start, validation and saving may take beside the training
ROWS = "rows.json"
JOB = "job.json"
OWN_BATCH = {"joeynmt": 4096}  # padded tokens of a batch, where the system's own recipe cuts the text that we write
NEVER = 10**9
MAX_LENGTH = 100  # pieces of a translation by a peer; the longest reference of Multi30k has about 50
FEW = 20  # sentences, and pieces of a translation, of a quick run

Row = dict[str, Any]


def run_entry(
    entry: Entry, config: RunConfig, minutes: Sequence[float], root: Path, *, lines: int | None = None
) -> list[Row]:
    """Return a row for each mark of an entry, or one with a note if it fails. Finished entries are read from disk.

    lines: most sentences of the test set; None is all of it.
    """
    common = {"system": entry.system, "configuration": entry.configuration, "note": ""}
    if missing := not_installed(entry.contender):
        return [{**common, "note": missing.replace("bench/setup.sh train", "bench/setup.sh quality")}]
    directory = root / entry.name
    text = prepare_text(
        config,
        entry.vocabulary,
        root,
        batch_tokens=OWN_BATCH.get(entry.system, 0) if entry.configuration == OWN else 0,
        processes=entry.contender.processes,
        lines=lines,
    )
    job = job_of(entry, config, minutes, text, directory)
    content = json.dumps(job, indent=1)
    finished = directory / ROWS
    if finished.exists() and (directory / JOB).read_text(encoding="utf-8") == content:
        rows: list[Row] = json.loads(finished.read_text(encoding="utf-8"))
        return rows
    if not _trained(directory, content, minutes):
        if directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True)
        (directory / JOB).write_text(content, encoding="utf-8")
        logger.info("%s: training until minute %g", entry.name, minutes[-1])
        if note := _run(entry, "train", directory, limit=60 * minutes[-1] + START):
            return [{**common, "note": f"training: {note}"}]
    if note := _translate(entry, text, config, minutes, directory):
        return [{**common, "note": f"translation: {note}"}]
    marks = [json.loads(line) for line in (directory / MARKS).read_text(encoding="utf-8").splitlines()]
    rows = [{**common, **_about(entry, text), **mark, **_scores(text, directory, mark, config)} for mark in marks]
    write_atomically(finished, json.dumps([{**row, **origin()} for row in rows], indent=1))
    return run_entry(entry, config, minutes, root, lines=lines)


def job_of(entry: Entry, config: RunConfig, minutes: Sequence[float], text: Text, directory: Path) -> Row:
    """Return the job that the entry's module reads. It has every setting, so that another job is another run.

    A peer's `initial_deviation` is the standard deviation of our embeddings before training, and of square matrices of
    the model's width, to which Glorot's rule gives the same; 0 leaves the weights to the peer.
    """
    common = {"directory": str(directory), "minutes": list(minutes), "configuration": entry.configuration}
    if entry.system == OURS:
        return {**common, "job": asdict(_own_job(entry, config, text, directory))}
    return {
        **common,
        "model": asdict(config.model),
        "train": asdict(config.train),
        "initial_deviation": config.model.dim**-0.5 if entry.configuration == INITIAL else 0.0,
        "text": str(text.directory),
        "size": text.sample.sizes[0],
        "sentences": text.sentences,
        "padded_tokens": text.padded_tokens // entry.contender.processes,
        "max_length": MAX_LENGTH if len(text.sources) > FEW else FEW,
        "version": _library(entry),
    }


def _own_job(entry: Entry, config: RunConfig, text: Text, directory: Path) -> TrainJob:
    """Return the job of `make train`, without validations and without an end."""
    values = {**asdict(config.train), "max_steps": NEVER, "max_tokens": 0, "validate_every": NEVER, "patience": 0}
    values["checkpoints"] = type(config.train.checkpoints)()
    values["schedule"], values["spikes"] = config.train.schedule, config.train.spikes
    contender = entry.contender
    return TrainJob(
        title=entry.name,
        slot=0,
        pairs=text.sample.pairs,
        encoded=text.sample.encoded,
        vocabulary=text.sample.vocabulary,
        out=str(directory),
        model=config.model,
        batch=config.batch,
        train=type(config.train)(**values),
        runtime=_runtime(config, contender.processes, contender.threads),
        layout=dict(config.layout),
    )


def _runtime(config: RunConfig, processes: int, threads: int) -> Any:
    ep = processes if config.model.moe.num_experts else 1
    values = {"processes": processes, "threads": threads, "ep": ep, "device": "cpu", "wandb": "disabled"}
    return type(config.runtime)(**{**_fields(config.runtime), **values})


def _fields(value: Any) -> Row:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _trained(directory: Path, content: str, minutes: Sequence[float]) -> bool:
    """Return whether the same job has reached its last mark."""
    if not (directory / MARKS).exists() or (directory / JOB).read_text(encoding="utf-8") != content:
        return False
    return len((directory / MARKS).read_text(encoding="utf-8").splitlines()) == len(minutes)


def _run(entry: Entry, action: str, directory: Path, *, limit: float) -> str:
    """Run an entry's module in its processes. Returns an empty text, or the reason why it failed."""
    contender = entry.contender
    processes = contender.processes if action == "train" else 1
    module = f"bench.quality.{'ours' if entry.system == OURS else f'peer_{entry.system}'}"
    command = [python_of(contender), "-m", module, str(directory / JOB), *([] if entry.system == OURS else [action])]
    logs = [directory / f"{action}-{rank}.log" for rank in range(processes)]
    running = []
    threads = contender.processes * contender.threads // processes
    for rank, log in enumerate(logs):
        variables = environment(contender, "cpu", rank, directory)
        variables |= {"WORLD_SIZE": str(processes), "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        with log.open("wb") as file:
            running.append(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    try:
        return _wait(running, logs, time.monotonic() + limit)
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(running: Sequence["subprocess.Popen[bytes]"], logs: Sequence[Path], deadline: float) -> str:
    while any(process.poll() is None for process in running):
        if any(process.poll() for process in running):
            break
        if time.monotonic() > deadline:
            return "it took too long"
        time.sleep(0.05)
    failed = [log for process, log in zip(running, logs, strict=True) if process.poll()]
    if not failed:
        return ""
    lines = [line.strip() for line in failed[0].read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), f"exit code {running[0].returncode}")


def _translate(entry: Entry, text: Text, config: RunConfig, minutes: Sequence[float], directory: Path) -> str:
    """Translate the test set by the weights of every mark. Returns an empty text, or the reason why it failed."""
    if all((directory / f"{mark_name(mark)}.words").exists() for mark in minutes):
        return ""
    logger.info("%s: translating", entry.name)
    if entry.system != OURS:
        return _run(entry, "translate", directory, limit=600 * len(minutes) + START)
    for mark in minutes:
        place = directory / mark_name(mark)
        shards = make_shards(place / "work", text.sources, source=text.pair.src, target=text.pair.tgt)
        job = TranslateJob(
            title=f"{entry.name} {mark_name(mark)}",
            rounds=[shards],
            max_source_tokens=0,
            long="whole",
            vocabulary=text.sample.vocabulary,
            checkpoints=str(place / CHECKPOINTS),
            log=str(place / "log"),
            decode=config.decode,
            runtime=_runtime(config, entry.contender.processes, entry.contender.threads),
        )
        run_job(job)
        records = {row: record for shard in shards for row, record in shard.records().items()}
        lines = [records[row].get("text", "") for row in range(len(text.sources))]
        write_atomically(directory / f"{mark_name(mark)}.words", "".join(f"{line}\n" for line in lines))
    return ""


def _scores(text: Text, directory: Path, mark: Mapping[str, Any], config: RunConfig) -> Row:
    """Return sacreBLEU's score of the translations of a mark, with its interval."""
    path = directory / f"{mark_name(mark['minutes'])}.words"
    if directory.name.startswith(OURS):
        hypotheses = path.read_text(encoding="utf-8").split("\n")[: len(text.sources)]
    else:
        hypotheses = text.decode(path)
    (result,) = resample([hypotheses], text.references, text.pair.tgt, "bleu", n_resamples=config.score.resamples)
    return {"bleu": result.score, "ci_low": result.ci_low, "ci_high": result.ci_high, "signature": result.signature}


def _about(entry: Entry, text: Text) -> Row:
    contender = entry.contender
    return {
        "library": _library(entry),
        "vocabulary": text.sample.sizes[0],
        "processes": contender.processes,
        "threads": contender.threads,
        "n_test": len(text.references),
    }


def _library(entry: Entry) -> str:
    """Return name and version of a peer, as installed in its environment."""
    if entry.system == OURS:
        return f"babelshard {origin()['version']}"
    (site,) = (ROOT / ENVIRONMENTS[entry.system] / "lib").glob("python*/site-packages")
    (package,) = metadata.distributions(name=entry.system, path=[str(site)])
    return f"{entry.system} {package.version}"
