"""The contest of the systems of one model: each is started, finds its fastest way, and takes turns with the others."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.decode.prepare import Material
from bench.decode.systems import CTRANSLATE2, OURS, TRANSFORMERS, Scale, System, Way
from bench.decode.turns import batches
from pipeline.config import ROOT
from pipeline.jobs.launch import process_environment

MODULES = {OURS: "ours", TRANSFORMERS: "peer_transformers", CTRANSLATE2: "peer_ctranslate2"}
ENVIRONMENTS = {TRANSFORMERS: ".venv-bench", CTRANSLATE2: ".venv-bench"}

Row = dict[str, Any]


class Running:
    """The running processes of one system in one way. Peers get the allocator settings of our own processes."""

    def __init__(self, system: System, way: Way, job: Row, directory: Path) -> None:
        self.system, self.way, self.sources = system, way, job["sources"]
        directory.mkdir(parents=True)
        self.log = directory / "log"
        count, threads = way.processes, way.threads
        if system.name == CTRANSLATE2:  # its workers are threads of one process
            count, threads = 1, way.processes * way.threads
        own_packages = system.name == OURS or job["device"] == "cuda"  # no CPU wheels of .venv-bench on a GPU
        python = sys.executable if own_packages else ROOT / ENVIRONMENTS[system.name] / "bin" / "python"
        self.processes = []
        for rank in range(count):
            path = directory / f"job-{rank}.json"
            about = {"processes": way.processes, "threads": way.threads, "precision": system.precision}
            about |= {"memory": system.memory, "batch_tokens": way.batch_tokens}
            path.write_text(json.dumps({**job, **about}), encoding="utf-8")
            variables = process_environment(rank, count, threads, directory / "rendezvous")
            variables |= {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}" if own_packages else str(ROOT)}
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    [str(python), "-m", f"bench.decode.{MODULES[system.name]}", str(path)],
                    cwd=ROOT,
                    env=variables,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            self.processes.append(process)
        try:
            self.about = [self._answer(process) for process in self.processes]
        except ValueError:
            self.end()
            raise

    def _answer(self, process: "subprocess.Popen[str]") -> Row:
        """Read one line from a process. Raises ValueError with the last line of the log if the process has ended."""
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            lines = [line.strip() for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines()]
            raise ValueError(next((line for line in reversed(lines) if line), "ended without a word"))
        answer: Row = json.loads(line)
        return answer

    def translate(self, count: int) -> Row:
        """Translate the first `count` sentences with all processes, and return the measured columns of the row.

        A process gets the next batch when it has finished one, as in `make translate`. CTranslate2 gets all sentences
        at once, because it cuts batches for its workers itself.
        """
        if self.system.name == CTRANSLATE2:
            waiting = iter([list(range(count))])
        else:
            waiting = iter(batches(self.sources[:count], self.way.batch_tokens))
        start = time.perf_counter()
        with ThreadPoolExecutor(len(self.processes)) as pool:
            answers_of = list(pool.map(lambda process: self._serve(process, waiting), self.processes))
        seconds = time.perf_counter() - start
        answers = [answer for of_one in answers_of for answer in of_one]
        translations = {int(number): tokens for answer in answers for number, tokens in answer["found"].items()}
        assert len(translations) == count
        return {
            "seconds": seconds,
            "cpu_seconds": sum(answer["cpu_seconds"] for answer in answers),
            "tokens": sum(len(tokens) + 1 for tokens in translations.values()),
            "rss": sum(of_one[-1]["rss"] for of_one in answers_of if of_one),
            "found": [translations[number] for number in range(count)],
        }

    def _serve(self, process: "subprocess.Popen[str]", waiting: Iterator[list[int]]) -> list[Row]:
        """Let one process translate batches until none waits, and return its answers.

        waiting: iterator of a list, from which threads may take batches at the same time.
        """
        assert process.stdin is not None
        answers = []
        for batch in waiting:
            process.stdin.write(f"{json.dumps(batch)}\n")
            process.stdin.flush()
            answers.append(self._answer(process))
        return answers

    def end(self) -> None:
        for process in self.processes:
            process.kill()  # it has nothing to save
            process.communicate()


def run_contest(
    model: str, systems: Sequence[System], material: Material, scale: Scale, directory: Path, device: str
) -> Iterator[Row]:
    """Yield a row for each system and round, with a note if it failed."""
    job = {**material.job(), "device": device}
    with contextlib.ExitStack() as alive:
        running: list[Running] = []
        for number, system in enumerate(systems):
            row = {"model": model, "system": system.label, "precision": system.precision, "round": 0}
            export = material.exports.get(system.name, "")
            if system.name != OURS and not isinstance(export, Path):
                yield {**row, "way": "", "note": export}
                continue
            try:
                running.append(_best(system, {**job, "export": str(export)}, scale, directory / f"{number}"))
            except (ValueError, OSError) as error:
                yield {**row, "way": "", "note": str(error)}
                continue
            alive.callback(running[-1].end)
        for number in range(scale.rounds):
            for contender in list(running):
                about: Row = {"model": model, "system": contender.system.label, "precision": contender.system.precision}
                about |= {"round": number, "way": str(contender.way)}
                cache = {key: value for key, value in contender.about[0].items() if key.startswith("cache")}
                try:
                    yield {**about, **cache, **contender.translate(len(material.sources)), "note": ""}
                except (ValueError, OSError) as error:
                    running.remove(contender)
                    yield {**about, "note": str(error)}


def _best(system: System, job: Row, scale: Scale, directory: Path) -> Running:
    """Start the system in each of its ways, and return the fastest on a few sentences, after a warm-up."""
    best, shortest = None, float("inf")
    for number, way in enumerate(system.ways):
        running = Running(system, way, job, directory / f"{number}")
        running.translate(min(4, scale.trial))
        seconds = running.translate(scale.trial)["seconds"]
        if best is None or seconds < shortest:
            if best is not None:
                best.end()
            best, shortest = running, seconds
        else:
            running.end()
    assert best is not None
    return best
