"""The systems of the benchmark, which translate the same sentences with the same weights. It does not import torch."""

from dataclasses import dataclass

MODELS = {"dense": "export_dense", "moe": "export_moe"}  # recipes, and the names of their runs
OURS, TRANSFORMERS, CTRANSLATE2 = "ours", "transformers", "ctranslate2"
THREADS = 2  # threads of all processes of a system together
BEAM = 4
LIMIT = 128  # most tokens of every translation, because CTranslate2 has no limit that depends on the source
BATCH_TOKENS = 8192  # padded source tokens times beam: our default


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to use the processors.

    processes: number of processes.
    threads: threads of each process.
    batch_tokens: most padded source tokens of a batch, times beam.
    """

    processes: int
    threads: int
    batch_tokens: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads}, {self.batch_tokens}"


@dataclass(frozen=True, kw_only=True)
class System:
    """A system of the contest.

    name: OURS, TRANSFORMERS or CTRANSLATE2.
    precision: fp32, bf16 or int8.
    memory: the setting `decode.beam_memory` of ours.
    ways: ways that are tried on a few sentences; the fastest is measured.
    """

    name: str
    precision: str
    memory: str = ""
    ways: tuple[Way, ...]

    @property
    def label(self) -> str:
        return f"{self.name} {self.memory}".strip()


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of the benchmark.

    sentences: sentences of the pairs' test sets.
    trial: sentences that decide which way of a system is fastest.
    rounds: rounds in which all systems take turns.
    training: overrides of the recipes.
    suffix: text that is added to the names of the recipes' runs.
    """

    sentences: int
    trial: int
    rounds: int
    training: tuple[str, ...] = ()
    suffix: str = ""


FULL = Scale(sentences=677, trial=160, rounds=5)
QUICK = Scale(
    sentences=12,
    trial=4,
    rounds=1,
    training=("train.max_tokens=20000", "train.warmup_steps=5", "vocab.source_size=1000", "vocab.target_size=1000"),
    suffix="_quick",
)

ONE_EACH = Way(processes=2, threads=1, batch_tokens=BATCH_TOKENS)
PEER_WAYS = tuple(
    Way(processes=processes, threads=THREADS // processes, batch_tokens=tokens)
    for processes in (2, 1)
    for tokens in (BATCH_TOKENS, BATCH_TOKENS // 4)
)


# One process of a GPU with batches of three sizes; ours tries them too, because its default is for a CPU.
GPU_WAYS = tuple(Way(processes=1, threads=2, batch_tokens=BATCH_TOKENS * factor) for factor in (1, 4, 16))


def systems(model: str, device: str) -> list[System]:
    """Return the systems for a model. The first is ours with its default memory, which the others are compared with."""
    on_gpu = device == "cuda"
    own_ways, peer_ways = (GPU_WAYS, GPU_WAYS) if on_gpu else ((ONE_EACH,), PEER_WAYS)
    contenders = [
        System(name=OURS, precision=precision, memory=memory, ways=own_ways)
        for precision in ("fp32", "bf16")
        for memory in ("flattened", "reordered")
    ]
    if not on_gpu:
        contenders.append(System(name=OURS, precision="int8", memory="flattened", ways=own_ways))
    contenders += [System(name=TRANSFORMERS, precision=precision, ways=peer_ways) for precision in ("fp32", "bf16")]
    if model == "dense" and not on_gpu:  # CTranslate2 has no MoE of this kind, and is built for CPUs in .venv-bench
        contenders += [System(name=CTRANSLATE2, precision=precision, ways=PEER_WAYS) for precision in ("fp32", "int8")]
    return contenders
