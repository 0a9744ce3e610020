"""The jobs of `bench.moe.worker`, from the options of the command line. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.moe.size import Size
from bench.moe.targets import OURS_ON_CUDA, OURS_WITHOUT_EXPERTS
from pipeline.model.moe.gates.config import GATES as RECORDS

PARTS = ("router", "gate", "dispatch", "combine")  # parts of our layer that are measured alone
MATMUL = "matmul"
PEERS = ("deepspeed", "lucidrains", "nllb")
GATES = tuple(kind for kind in RECORDS if kind != "top2")
DTYPES = ("fp32", "bf16", "bf16-weights")
SECTIONS = ("layer", "gates", "growth")
LARGEST = {"lucidrains": 128, "nllb": 32}  # most experts of a peer, which is too slow with more


@dataclass(frozen=True, kw_only=True)
class Job:
    """The work of one process.

    dtype: a precision of `Place`.
    sizes: fields of each `Size`.
    seconds, rounds: budget and most rounds of one size.
    matmul: n of the n³ matmul that counts as the device's peak.
    memory: measure memory, not times.
    library: library for float32 products on a CPU: `mkl` (torch's default), or `best`, as in training.
    """

    section: str
    device: str
    dtype: str
    threads: int
    sizes: list[dict[str, Any]]
    variants: list[str]
    seconds: float
    rounds: int
    matmul: int
    memory: bool
    library: str


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and budgets of a whole run, and the defaults of its options.

    layer, growth: sizes of the sections; `experts` and `growth_experts` replace their number of experts.
    """

    layer: Size
    experts: tuple[int, ...]
    dtypes: tuple[str, ...]
    threads: tuple[int, ...]
    sections: tuple[str, ...]
    growth: Size
    growth_experts: tuple[int, ...]
    seconds: float
    rounds: int
    matmul: int


CPU = Scale(
    layer=Size(model=512, hidden=2048, tokens=4096, experts=8),
    experts=(8, 32, 128),
    dtypes=("fp32", "bf16"),
    threads=(1, 2),
    sections=SECTIONS,
    growth=Size(model=128, hidden=512, tokens=8192, experts=8),
    growth_experts=(8, 128, 2048),
    seconds=20.0,
    rounds=30,
    matmul=2048,
)
CUDA = Scale(
    layer=Size(model=1024, hidden=8192, tokens=32768, experts=8),
    experts=(8, 32, 128),
    dtypes=("bf16",),
    threads=(1,),
    sections=("layer",),
    growth=Size(model=1024, hidden=1024, tokens=32768, experts=8),
    growth_experts=(8, 128, 2048),
    seconds=5.0,
    rounds=50,
    matmul=8192,
)
QUICK = Scale(
    layer=Size(model=16, hidden=32, tokens=64, experts=4),
    experts=(4, 8),
    dtypes=("fp32",),
    threads=(1,),
    sections=SECTIONS,
    growth=Size(model=8, hidden=16, tokens=64, experts=4),
    growth_experts=(4, 16),
    seconds=0.0,
    rounds=2,
    matmul=64,
)


def jobs(
    scale: Scale,
    *,
    device: str,
    sections: Sequence[str],
    experts: Sequence[int],
    dtypes: Sequence[str],
    threads: Sequence[int],
    variants: Sequence[str] = (),
    library: str = "best",
) -> list[Job]:
    """Return the jobs of a run.

    The layer is measured in every dtype and with every number of threads. Gates and growth take the first dtype and
    number of threads, and gates the first number of experts. After the times of each dtype, one job measures memory,
    which does not depend on threads.

    variants: variants of the section `layer`, by default all.
    """
    own_variants = OURS_ON_CUDA if device == "cuda" else ("ours",)
    layer = list(variants) or ["dense", "ideal", *own_variants, *PEERS, OURS_WITHOUT_EXPERTS, *PARTS]
    gates = ["dense", "ours", *(f"ours {gate}" for gate in GATES)]
    growth = ["ours", OURS_WITHOUT_EXPERTS, *PARTS]
    sizes = [replace(scale.layer, experts=number) for number in experts]
    grown = [replace(scale.growth, experts=number) for number in scale.growth_experts]
    job_list: list[Job] = []
    for section, names, section_sizes, section_dtypes, counts in (
        ("layer", layer, sizes, dtypes, threads),
        ("gates", gates, sizes[:1], dtypes[:1], threads[:1]),
        ("growth", growth, grown, dtypes[:1], threads[:1]),
    ):
        if section not in sections:
            continue
        for dtype in section_dtypes:
            job = Job(
                section=section,
                device=device,
                dtype=dtype,
                threads=max(threads),
                sizes=[asdict(size) for size in section_sizes],
                variants=[name for name in names if name not in PARTS],
                seconds=scale.seconds,
                rounds=scale.rounds,
                matmul=scale.matmul,
                memory=True,
                library=library,
            )
            job_list += [replace(job, threads=count, variants=names, memory=False) for count in counts]
            job_list.append(job)
    return job_list
