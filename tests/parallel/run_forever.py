"""Run a job of two processes whose budget is endless, and print its error."""

import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipeline.jobs.launch import JobFailed, launch
from tests.conftest import Prepared
from tests.parallel.conftest import make_job

vocabulary, out, *encoded = sys.argv[1:]
prepared = Prepared(pairs=["ja-en", "tr-en"], bitexts=[], encoded=encoded, vocabulary=vocabulary)
job = make_job(prepared, Path(out), processes=2, ep=2, max_steps=10**6)
try:
    launch("pipeline.train", asdict(job), directory=Path(out) / "log", processes=2, threads=1, title="forever")
except JobFailed as error:
    print(error)
