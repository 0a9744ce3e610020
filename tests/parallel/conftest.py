"""Real training jobs, with real processes, gloo and DeepSpeed."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.mixture_config import MixtureConfig
from pipeline.jobs.launch import launch, process_environment
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.initialization import initialize
from pipeline.model.transformer import Transformer
from pipeline.tasks import DataConfig
from pipeline.train.config import CheckpointConfig, TrainConfig
from pipeline.train.job import TrainJob
from pipeline.train.retention import apply, forget_after
from pipeline.train.schedule import ScheduleConfig
from pipeline.train.spikes import SpikeConfig
from pipeline.vocab.tokenizer import Vocabulary


@dataclass(frozen=True)
class Outcome:
    """The directory that a job has written."""

    directory: Path

    def records(self, event: str) -> list[dict[str, Any]]:
        lines = (self.directory / "log" / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["event"] == event]

    def checkpoint(self) -> Path:
        root = self.directory / "checkpoints"
        return Path(root / json.loads((root / "best.json").read_text())["last"])

    def until(self, step: int, directory: Path) -> "Outcome":
        """Return a copy of the state after a step. The run must have kept a checkpoint of every step."""
        copy = Outcome(directory / f"until-{step}")
        shutil.copytree(self.directory, copy.directory)
        forget_after(copy.directory / "checkpoints", step)
        apply(copy.directory / "checkpoints", CheckpointConfig(every_n=1))
        return copy

    def tensors(self, name: str = "") -> dict[str, Tensor]:
        """Return all tensors of a checkpoint, by default the last one, read without the code under test."""
        from safetensors import safe_open

        parts: dict[str, list[tuple[list[int], Tensor]]] = {}
        checkpoint = self.checkpoint().with_name(name) if name else self.checkpoint()
        for shard in sorted(checkpoint.glob("*.safetensors")):
            with safe_open(shard, framework="pt") as file:
                offsets = json.loads((file.metadata() or {}).get("DCP_SHARDING_INFO", "{}"))
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    part = file.get_tensor(name)
                    starts = offsets.get(name, {}).get("saved_offsets", [0] * part.dim())
                    parts.setdefault(name, []).append((starts, part))
        tensors = {}
        for name, placed in parts.items():
            ends = [[start + size for start, size in zip(starts, t.shape, strict=True)] for starts, t in placed]
            whole = tensors[name] = placed[0][1].new_empty([max(sizes) for sizes in zip(*ends, strict=True)])
            assert whole.numel() == sum(t.numel() for _, t in placed), name
            for starts, t in placed:
                whole[tuple(slice(s, s + n) for s, n in zip(starts, t.shape, strict=True))] = t
        return tensors


def assert_same_bits(actual: Outcome, expected: Outcome) -> None:
    """Assert that the last checkpoints of two runs have equal tensors, bit for bit."""
    tensors, expected_tensors = actual.tensors(), expected.tensors()
    assert tensors.keys() == expected_tensors.keys()
    for name, tensor in expected_tensors.items():
        assert torch.equal(tensors[name], tensor), name


GSHARD = {"G": ["data", "expert"], "E": "expert"}
MODEL = {**GSHARD, "H": "model", "N": "model", "V": "model"}

RunJob = Callable[..., Outcome]


def run_worker(name: str, directory: Path, *arguments: str, processes: int = 2) -> str:
    """Run a script of this folder as processes that meet in `directory`. Return the output of the first one.

    If a process fails, all are killed.
    """
    outputs = [directory / f"{rank}.out" for rank in range(processes)]
    started = []
    for rank, output in enumerate(outputs):
        with output.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name(name)), *arguments],
                env={
                    **process_environment(rank, processes, 1, directory / "store"),
                    "PYTHONPATH": str(Path(__file__).parents[2]),
                },
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
    end = time.monotonic() + 1800
    try:
        while (codes := [p.poll() for p in started]) and None in codes and not any(codes) and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert codes == [0] * processes, "\n".join(output.read_text() for output in outputs)
    return outputs[0].read_text()


SPIKY = {  # a run with Adafactor, whose spikes SPIKES makes
    "optimizer": "adafactor",
    "learning_rate": 0.01,
    "warmup_steps": 0,
    "schedule": ScheduleConfig(kind="warmup_hold_inverse_square_root", hold_steps=2),
    "clip_norm": 0.0,
    "ema": 0.5,
    "max_steps": 7,
    "spikes": SpikeConfig(threshold=5.0, window=3, patience=3),
    "checkpoints": CheckpointConfig(every_n=1),
}
SPIKES = {"factors": {"5": "nan", "6": 1e4}}


def step_name(step: int) -> str:
    return f"step-{step:08}"


def make_job(prepared: Any, out: Path, *, processes: int, ep: int, **changes: Any) -> TrainJob:
    """Return a job with a small MoE model, with dropout and random routing.

    changes: fields of the training configuration, and `runtime`, `layout` and `moe`.
    """
    runtime = changes.pop("runtime", {})
    moe = changes.pop("moe", MoEConfig(num_experts=4, expert_dim=32))
    layout = changes.pop("layout", GSHARD)
    train = {
        "max_steps": 4,
        "max_tokens": 0,
        "learning_rate": 3e-3,
        "warmup_steps": 4,
        "validate_every": 100,
        "log_every": 1,
    }
    return TrainJob(
        title=f"{processes} processes, ep={ep}",
        slot=0,
        pairs=prepared.pairs,
        encoded=prepared.encoded,
        vocabulary=prepared.vocabulary,
        out=str(out),
        model=ModelConfig(
            dim=32,
            ffn_dim=64,
            heads=2,
            encoder_layers=2,
            decoder_layers=2,
            dropout=0.1,
            moe=moe,
        ),
        batch=BatchConfig(
            shapes=[GroupShape(rows=4, source=96, target=64)],
            groups_per_step=4,
            mixture=MixtureConfig(temperature=2.0),
            window_steps=4,
        ),
        train=TrainConfig(**{**train, **changes}),
        runtime=RuntimeConfig(
            **{
                "launcher": "local",
                "hostfile": "",
                "master_address": "",
                "master_port": 29500,
                "processes": processes,
                "threads": 1,
                "ep": ep,
                "device": "cpu",
                "zero_stage": 1,
                "parallel_baselines": 1,
                "timeout": 120,
                "recompute": "none",
                "heartbeat": 30,
                "compile": False,
                "decode_experts": "auto",
                "artifacts": "-",
                "runs": "-",
                "wandb": "disabled",
                "data": DataConfig(),
                **runtime,
            }
        ),
        layout=layout,
        directions=[pair.replace("-", ":") for pair in prepared.pairs],
    )


def initial_model(job: TrainJob) -> Transformer:
    """Return the whole model of a job with its initial weights."""
    vocabulary = Vocabulary.load(Path(job.vocabulary))
    sizes = {"source_vocabulary": vocabulary.source_size, "target_vocabulary": vocabulary.target_size}
    model = Transformer(job.model, **sizes, shared=vocabulary.shared, max_positions=96)
    initialize(model, job.train.seed)
    return model


@pytest.fixture(scope="session")
def run_job(prepared: Any, tmp_path_factory: pytest.TempPathFactory) -> RunJob:
    """Run a job to its end. `into` continues in the directory of an older outcome."""

    def run(*, processes: int, ep: int, into: Outcome | None = None, **changes: Any) -> Outcome:
        out = into.directory if into else tmp_path_factory.mktemp(f"world{processes}-ep{ep}")
        job = make_job(prepared, out, processes=processes, ep=ep, **changes)
        launch("pipeline.train", asdict(job), directory=out / "log", processes=processes, threads=1, title=job.title)
        return Outcome(out)

    return run


EVERY = CheckpointConfig(every_n=1)


@pytest.fixture(scope="session")
def straight(run_job: RunJob) -> Outcome:
    """A run without interruption, with a checkpoint of every step."""
    return run_job(processes=2, ep=2, max_steps=6, checkpoints=EVERY)


@pytest.fixture(scope="session")
def alone(run_job: RunJob) -> Outcome:
    """The same run on one process."""
    return run_job(processes=1, ep=1, max_steps=6, checkpoints=EVERY)


@pytest.fixture(scope="session")
def dense(run_job: RunJob) -> Outcome:
    """A run of a dense model."""
    return run_job(processes=1, ep=1, max_steps=3, moe=MoEConfig(), checkpoints=EVERY)


@pytest.fixture(scope="session")
def kept_three(run_job: RunJob) -> Outcome:
    """A run that saved at steps 2, 3, 4, 6 and 8. Only the last save did not overlap with training."""
    keep = CheckpointConfig(best_k=2, last_n=3, every_n=3, save_every=4)
    return run_job(processes=2, ep=2, max_steps=8, validate_every=2, checkpoints=keep)


@pytest.fixture(scope="session")
def run_wrong(prepared: Any, tmp_path_factory: pytest.TempPathFactory) -> RunJob:
    """Run a job of two processes with the bad steps of skipping_worker.py. `into` is that of `run_job`."""

    def run(wrong: dict[str, Any], *, into: Outcome | None = None, **changes: Any) -> Outcome:
        out = into.directory if into else tmp_path_factory.mktemp("wrong")
        job = make_job(prepared, out, processes=2, ep=2, **changes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BABELSHARD_WRONG", json.dumps(wrong))
            patch.chdir(Path(__file__).resolve().parents[2])
            worker = "tests.parallel.skipping_worker"
            launch(worker, asdict(job), directory=out / "log", processes=2, threads=1, title=job.title)
        return Outcome(out)

    return run


@pytest.fixture(scope="session")
def spiky(run_wrong: RunJob) -> Outcome:
    """A run of seven steps with Adafactor. The fifth and the sixth step are spikes."""
    return run_wrong(SPIKES, **SPIKY)
