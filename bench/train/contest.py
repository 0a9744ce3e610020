"""Runs a contest: starts its contenders one by one, gives them their turns, collects what they report."""

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

from bench.train.data import Sample, cut_batches, padded_tokens, sorted_sentences, step_tokens, write_text
from bench.train.plan import OURS, Contender, Contest
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
    """The processes of one contender."""

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
                    env=environment(contender, contest, rank, directory),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.processes.append(process)

    def wait(self, ready: Callable[[], bool], what: str) -> str:
        """Empty once every process is ready, else why it never will be."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            if any(process.poll() is not None for process in self.processes) and not ready():
                return f"{what}: {self.last_words()}"
            if time.monotonic() > deadline:
                return f"{what} took more than {PATIENCE:.0f} s"
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
        """The last line that says something, of the first process that ended."""
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
                os.killpg(process.pid, signal.SIGKILL)  # it has written its rows; it would wait for its next turn
            process.wait()


def environment(contender: Contender, contest: Contest, rank: int, directory: Path) -> dict[str, str]:
    """Variables of one process: its rank, threads and allocator settings, which peers have from us too."""
    return {
        **process_environment(rank, contender.processes, contender.threads, directory / "rendezvous"),
        "PYTHONPATH": python_path(contender),
        "KINETO_LOG_LEVEL": "9",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
        "DS_ACCELERATOR": contest.device,
    }


def python_of(contender: Contender) -> str:
    """Interpreter of its environment; the peers' are made by bench/setup.sh."""
    return sys.executable if contender.name == OURS else str(ROOT / ENVIRONMENTS[contender.name] / "bin" / "python")


def python_path(contender: Contender) -> str:
    """Ours may have packages from wherever this process has them, peers from their environments alone."""
    own = os.environ.get("PYTHONPATH", "") if contender.name == OURS else ""
    return f"{ROOT}:{own}" if own else str(ROOT)


def run_contest(contest: Contest, sample: Sample, directory: Path) -> Iterator[Row]:
    """A row for each contender and round but the warm-up, sums over its processes; one with a note where it failed."""
    running: list[Running] = []
    try:
        for number, contender in enumerate(contest.contenders):
            where = directory / str(number)
            where.mkdir()
            missing = not_installed(contender)
            if missing:
                yield {**_common(contender), "note": missing}
                continue
            one = Running(contender, contest, job_of(contender, contest, sample, where), where)
            running.append(one)
            if contender.is_ours:  # it measures the matmul peak, so nothing else may start
                yield from _starting([one], running)
        yield from _starting([one for one in running if not one.contender.is_ours], running)
        yield from _rounds(contest, running)
    finally:
        for one in running:
            one.end()


def _starting(fresh: list[Running], running: list[Running]) -> Iterator[Row]:
    """Wait until they are ready to begin; those that never will be leave `running`."""
    for one in fresh:
        note = one.wait(one.started, "start")
        if note:
            yield from _give_up(one, running, note)


def _rounds(contest: Contest, running: list[Running]) -> Iterator[Row]:
    for number in range(len(contest.rounds)):
        for one in list(running):
            (one.directory / f"go-{number}").touch()
            note = one.wait(partial(one.finished, number), f"round {number}")
            if note:
                yield from _give_up(one, running, note)
            elif number:
                yield {
                    **_common(one.contender),
                    **added([one.rows(rank)[number] for rank in range(len(one.processes))]),
                }


def _give_up(one: Running, running: list[Running], note: str) -> Iterator[Row]:
    one.end()
    running.remove(one)
    yield {**_common(one.contender), "note": note}


def added(rows: list[Row]) -> Row:
    """One row of all processes of a contender: seconds the longest, constants the first's, the rest summed;
    parts of the time are then seconds of all processes together."""
    first = rows[0]
    same = ("round", "steps", "threads", "parameters", "peak", "library")
    summed = {name: sum(row[name] for row in rows) for name in first if name not in (*same, "seconds")}
    return {
        **{name: first[name] for name in same if name in first},
        **summed,
        "seconds": max(r["seconds"] for r in rows),
    }


def _common(contender: Contender) -> Row:
    return {"variant": contender.name, "processes": contender.processes, "threads": contender.threads, "note": ""}


def not_installed(contender: Contender) -> str:
    """Why bench/setup.sh could not make the peer's environment, or empty."""
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
    """What the contender's module reads."""
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
    """The same on so many processes, over all of which experts are cut."""
    return replace(runtime, processes=processes, ep=processes if contest.model.moe.num_experts else 1)


def own_job(contender: Contender, contest: Contest, sample: Sample, directory: Path) -> TrainJob:
    """Training as `make train` does it, with a record of every step, and without an end of its own."""
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
