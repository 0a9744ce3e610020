"""The running of a contest: its contenders are started one by one, take turns, and report their rows."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.train.contenders import OURS, Contender, Contest
from bench.train.data import Sample, cut_batches, padded_tokens, sorted_sentences, step_tokens, write_text
from bench.train.router import trained_router
from pipeline.config import ROOT
from pipeline.jobs.launch import process_environment
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.train.config import TrainConfig
from pipeline.train.job import TrainJob

PATIENCE = 600.0  # seconds for a start or a round
ENVIRONMENTS = {"transformers": ".venv-bench", "joeynmt": ".venv-joeynmt", "eole": ".venv-eole"}
NEVER = 10**9

Row = dict[str, Any]


class Running:
    """The running processes of one contender."""

    def __init__(self, contender: Contender, contest: Contest, job: Row, directory: Path) -> None:
        self.contender, self.directory = contender, directory
        self.processes: list[subprocess.Popen[bytes]] = []
        job = {**job, "directory": str(directory), "rounds": contest.rounds}
        (directory / "job.json").write_text(json.dumps(job), encoding="utf-8")
        module = f"bench.train.{'ours' if contender.name == OURS else f'peer_{contender.name}'}"
        for rank in range(contender.processes):
            with (directory / f"log-{rank}").open("wb") as log:
                process = subprocess.Popen(
                    [python_of(contender), "-m", module, str(directory / "job.json")],
                    cwd=ROOT,
                    env=environment(contender, contest.device, rank, directory),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.processes.append(process)

    def wait(self, ready: Callable[[], bool], event: str) -> str:
        """Wait until every process is ready. Return an empty text, or the reason why this will not happen."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if any(process.poll() is not None for process in self.processes) and not ready():
                return f"{event}: {self.last_words()}"
            if time.monotonic() > deadline:
                return f"{event} took more than {PATIENCE:.0f} s"
            time.sleep(0.01)
        return ""

    def started(self) -> bool:
        return all((self.directory / f"ready-{rank}").exists() for rank in range(len(self.processes)))

    def rows(self, rank: int) -> list[Row]:
        path = self.directory / f"rows-{rank}.jsonl"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def finished(self, number: int) -> bool:
        return all(len(self.rows(rank)) > number for rank in range(len(self.processes)))

    def last_words(self) -> str:
        """Return the last line with text that the first ended process wrote."""
        ended = [rank for rank, process in enumerate(self.processes) if process.poll() is not None]
        logs = [self.directory / f"rank-{rank}.error" for rank in ended] + [self.directory / f"log-{r}" for r in ended]
        lines = [
            line.strip()
            for path in logs
            if path.exists()
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
            if line.strip()
        ]
        return lines[0] if lines else f"ended with exit code {self.processes[ended[0]].returncode}"

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # it would wait for its next turn
            process.wait()


def environment(contender: Contender, device: str, rank: int, directory: Path) -> dict[str, str]:
    """Return the environment of one process: rank, threads, and our allocator settings, for peers too."""
    return {
        **process_environment(rank, contender.processes, contender.threads, directory / "rendezvous"),
        "PYTHONPATH": python_path(contender),
        "KINETO_LOG_LEVEL": "9",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
        "DS_ACCELERATOR": device,
    }


def python_of(contender: Contender) -> str:
    """Return the interpreter of a contender. bench/setup.sh makes the environments of peers."""
    return sys.executable if contender.name == OURS else str(ROOT / ENVIRONMENTS[contender.name] / "bin" / "python")


def python_path(contender: Contender) -> str:
    """Return PYTHONPATH. Ours may have the packages of this process, and peers only those of their environments."""
    own = os.environ.get("PYTHONPATH", "") if contender.name == OURS else ""
    return f"{ROOT}:{own}" if own else str(ROOT)


def run_contest(contest: Contest, sample: Sample, directory: Path) -> Iterator[Row]:
    """Yield a row for each contender and round, without the warm-up round.

    Rows are sums over a contender's processes. A contender that fails has a row with a note.
    """
    running: list[Running] = []
    try:
        for number, contender in enumerate(contest.contenders):
            folder = directory / str(number)
            folder.mkdir()
            missing = not_installed(contender)
            if missing:
                yield {**_common(contender), "note": missing}
                continue
            run = Running(contender, contest, job_of(contender, contest, sample, folder), folder)
            running.append(run)
            if contender.is_ours:  # it measures the matmul peak, so no other contender may start
                yield from _starting([run], running)
        yield from _starting([run for run in running if not run.contender.is_ours], running)
        yield from _rounds(contest, running)
    finally:
        for run in running:
            run.end()


def _starting(fresh: list[Running], running: list[Running]) -> Iterator[Row]:
    """Wait until the fresh ones are ready to begin. Those that fail are removed from `running`, each with a row."""
    for run in fresh:
        note = run.wait(run.started, "start")
        if note:
            yield from _give_up(run, running, note)


def _rounds(contest: Contest, running: list[Running]) -> Iterator[Row]:
    for number in range(len(contest.rounds)):
        for run in list(running):
            (run.directory / f"go-{number}").touch()
            note = run.wait(partial(run.finished, number), f"round {number}")
            if note:
                yield from _give_up(run, running, note)
            elif number:
                yield {
                    **_common(run.contender),
                    **added([run.rows(rank)[number] for rank in range(len(run.processes))]),
                }


def _give_up(run: Running, running: list[Running], note: str) -> Iterator[Row]:
    run.end()
    running.remove(run)
    yield {**_common(run.contender), "note": note}


def added(rows: list[Row]) -> Row:
    """Add up the rows of a contender's processes.

    `seconds` is that of the slowest process. Constants are those of the first. All other columns are sums, so the parts
    of the time are seconds of all processes together.
    """
    first = rows[0]
    constants = ("round", "steps", "threads", "parameters", "peak", "library")
    summed = {name: sum(row[name] for row in rows) for name in first if name not in (*constants, "seconds")}
    return {
        **{name: first[name] for name in constants if name in first},
        **summed,
        "seconds": max(r["seconds"] for r in rows),
    }


def _common(contender: Contender) -> Row:
    return {"variant": contender.name, "processes": contender.processes, "threads": contender.threads, "note": ""}


def not_installed(contender: Contender) -> str:
    """Return the reason why bench/setup.sh could not make the peer's environment, or an empty text."""
    if contender.name == OURS:
        return ""
    environment = ROOT / ENVIRONMENTS[contender.name]
    if (environment / ".ready").exists():
        return ""
    log = environment / "install.log"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    errors = [line for line in lines if "ERROR" in line] or [f"no {environment.name}; run bench/setup.sh train"]
    return f"not installed: {errors[-1].strip()}"


def job_of(contender: Contender, contest: Contest, sample: Sample, directory: Path) -> Row:
    """Return the job that the contender's module reads."""
    if contender.is_ours:
        own = own_job(contender, contest, sample, directory)
        if contest.model.moe.num_experts:
            most = max(c.processes for c in contest.contenders if c.is_ours)
            weights = trained_router(contest, sample, replace(own, runtime=_cut(own.runtime, most, contest)))
            own = replace(own, train=replace(own.train, initialize_from=str(weights)))
        return {"job": asdict(own)}
    tokens = step_tokens(sample, contest.batch) // contender.processes
    sentences = sorted_sentences(sample)
    batches = cut_batches(sentences, tokens)
    job = {"model": asdict(contest.model), "sizes": sample.sizes, "target_tokens": tokens, "dtype": contest.dtype}
    if contender.name == "transformers":
        shared = [[[side.tolist() for side in pair] for pair in batch] for batch in batches[:200]]
        return {**job, "batches": shared}
    write_text(batches, sample.sizes[0], directory)
    return {**job, "padded_tokens": padded_tokens(sentences, tokens), "sentences": len(sentences)}


def _cut(runtime: RuntimeConfig, processes: int, contest: Contest) -> RuntimeConfig:
    """Return the runtime with so many processes, over all of which experts are cut."""
    return replace(runtime, processes=processes, ep=processes if contest.model.moe.num_experts else 1)


def own_job(contender: Contender, contest: Contest, sample: Sample, directory: Path) -> TrainJob:
    """Return the job of `make train`, with a record of every step and without an end."""
    runtime = replace(sample.runtime, threads=contender.threads, device=contest.device, wandb="disabled")
    runtime = _cut(runtime, contender.processes, contest)
    return TrainJob(
        title=f"{contest.title} {contest.dtype}, {contender.processes} processes",
        slot=0,
        pairs=sample.pairs,
        encoded=sample.encoded,
        vocabulary=sample.vocabulary,
        out=str(directory),
        model=contest.model,
        batch=contest.batch,
        train=TrainConfig(
            max_steps=NEVER,
            max_tokens=0,
            learning_rate=1e-3,
            warmup_steps=1000,
            weight_decay=0.01,
            validate_every=NEVER,
            precision=contest.dtype,
            log_every=1,
        ),
        runtime=runtime,
        layout={"G": ["data", "expert"], "E": "expert"},
    )
