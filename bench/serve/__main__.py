"""The command `make bench BENCH=serve`, which measures translations per second and waiting times of `make serve`.

1, 8 and 32 clients send one sentence after another. Two servers take turns: one translates 32 lines together, the other
each line alone.
"""

import argparse
import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.output import ROOT, Row, aligned, device_name, results_file, write_csv

PYTHON = ROOT / ".venv" / "bin" / "python"
CLIENTS = (1, 8, 32)
BATCHES = (32, 1)  # lines that a server translates together
PROCESSES = 2
COLUMNS = (
    *("device", "run", "pair", "processes", "batch", "clients", "requests", "rounds"),
    *("requests_per_second", "slowest", "fastest", "ms", "ms_99", "gain"),
)

Round = tuple[float, list[float]]  # requests per second, and the seconds of each request


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.serve")
    parser.add_argument("--run", default="smoke", help="finished run; if there is none, its recipe is trained")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=16, help="of each client in a round")
    parser.add_argument("--out", type=Path, help="CSV file, or a folder for serve-<device>.csv; default bench/results")
    options = parser.parse_args()
    pair, texts = sentences(options.run)
    rounds: dict[tuple[int, int], list[Round]] = {(batch, clients): [] for clients in CLIENTS for batch in BATCHES}
    with ExitStack() as stack:
        ports = {batch: stack.enter_context(server(options.run, batch)) for batch in BATCHES}
        for number in range(-1, options.rounds):  # round -1 is a warm-up
            for batch, clients in rounds:
                measured = measure(ports[batch], pair, texts, clients=clients, requests=options.requests)
                if number >= 0:
                    rounds[batch, clients].append(measured)
    name = device_name("cpu")
    rows = judge(rounds, {"device": name, "run": options.run, "pair": pair, "processes": PROCESSES})
    out = results_file("serve", name, options.out)
    write_csv(rows, COLUMNS, out)
    print(f"`make serve` on {name}\n\n{table(rows)}\n\nwritten to {out}")


def sentences(run: str) -> tuple[str, list[str]]:
    """Return the run's first pair and the sources of its test set. The run is trained if it does not exist."""
    directory = ROOT / "runs" / run
    if not (directory / "run.json").exists():
        command = [str(PYTHON), "-m", "pipeline", "train", f"recipes={run}"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    path = min((directory / "translations" / "moe").glob("*.jsonl"))
    return path.stem, [json.loads(line)["source"] for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


@contextmanager
def server(run: str, batch: int) -> Iterator[int]:
    """Start a server, wait until its model is loaded, and give its port."""
    settings = [f"run={run}", "port=0", f"batching.lines={batch}", f"runtime.processes={PROCESSES}"]
    command = [str(PYTHON), "-m", "pipeline", "serve", *settings]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = list(_until_ready(process.stderr))
            ready = re.search(r"^ready: .*:(\d+)$", lines[-1]) if lines else None
            if not ready:
                raise SystemExit(f"the server has ended:\n{''.join(lines)}")
            yield int(ready[1])
        finally:
            process.terminate()


def _until_ready(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith("ready: "):
            return


def measure(port: int, pair: str, texts: Sequence[str], *, clients: int, requests: int) -> Round:
    """Send requests of one sentence, and return the measured round.

    Each client sends `requests` of them one after another over its own connection.
    """
    client = threading.local()

    def ask(text: str) -> float:
        if not hasattr(client, "connection"):
            client.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        sent = time.perf_counter()
        body = json.dumps({"pair": pair, "text": text})
        client.connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
        answer = client.connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise SystemExit(f"{answer.status}: {content!r}")
        return time.perf_counter() - sent

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        seconds = list(pool.map(ask, islice(cycle(texts), clients * requests)))
    return len(seconds) / (time.perf_counter() - start), seconds


def judge(rounds: dict[tuple[int, int], list[Round]], about: Row) -> list[dict[str, Any]]:
    """Return a row for each batch and number of clients.

    The column `gain` is the median over rounds of the rate divided by the rate of one client.
    """
    rows = []
    for (batch, clients), measured in rounds.items():
        rates = [rate for rate, _ in measured]
        waits = [1e3 * seconds for _, round_seconds in measured for seconds in round_seconds]
        single_rates = [rate for rate, _ in rounds[batch, 1]]
        rows.append(
            {
                **about,
                "batch": batch,
                "clients": clients,
                "requests": len(measured[0][1]),
                "rounds": len(measured),
                "requests_per_second": median(rates),
                "slowest": min(rates),
                "fastest": max(rates),
                "ms": median(waits),
                "ms_99": quantiles(waits, n=100, method="inclusive")[98],
                "gain": median(rate / single for rate, single in zip(rates, single_rates, strict=True)),
            }
        )
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table."""
    lines: list[tuple[str, ...]] = [("batch", "clients", "requests/s", "slowest", "fastest", "ms", "ms, p99", "gain")]
    for row in rows:
        numbers = ("requests_per_second", "slowest", "fastest", "ms", "ms_99", "gain")
        lines.append((f"{row['batch']}", f"{row['clients']}", *(f"{row[name]:.1f}" for name in numbers)))
    return aligned(lines, left=())


if __name__ == "__main__":
    main()
