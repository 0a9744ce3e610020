"""What is measured: systems that translate the same sentences with the same weights; free of torch."""

from dataclasses import dataclass

MODELS = {"dense": "export_dense", "moe": "export_moe"}  # recipes, and the names of their runs
OURS, TRANSFORMERS, CTRANSLATE2 = "ours", "transformers", "ctranslate2"
THREADS = 2  # of all processes of a system together
BEAM = 4
LIMIT = 128  # tokens of a translation at most, the same for every sentence: CTranslate2 knows no limit by source
BATCH_TOKENS = 8192  # of padded sources times beam; ours has its default


@dataclass(frozen=True, kw_only=True)
class Way:
    """processes of `threads` each. batch_tokens: of padded sources, times beam."""

    processes: int
    threads: int
    batch_tokens: int

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads}, {self.batch_tokens}"


@dataclass(frozen=True, kw_only=True)
class System:
    """name: of a module here. precision: fp32, bf16 or int8. memory: `decode.beam_memory`, of ours. ways: tried on a
    few sentences, of which the fastest is measured."""

    name: str
    precision: str
    memory: str = ""
    ways: tuple[Way, ...]

    @property
    def label(self) -> str:
        return f"{self.name} {self.memory}".strip()


@dataclass(frozen=True, kw_only=True)
class Scale:
    """sentences: of the pairs' test sets. trial: of them, to find a system's best way. rounds: of all systems, one
    after the other. training: overrides of the recipes, and what is added to the name of their runs."""

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


def systems(model: str) -> list[System]:
    """Ours first, by its default memory: what the others are compared with."""
    planned = [
        System(name=OURS, precision=precision, memory=memory, ways=(ONE_EACH,))
        for precision in ("fp32", "bf16")
        for memory in ("flattened", "reordered")
    ]
    planned += [System(name=TRANSFORMERS, precision=precision, ways=PEER_WAYS) for precision in ("fp32", "bf16")]
    if model == "dense":  # it has no MoE of this kind
        planned += [System(name=CTRANSLATE2, precision=precision, ways=PEER_WAYS) for precision in ("fp32", "int8")]
    return planned
