"""What is measured: contests between contenders, from the command line's choices; free of torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.mixture_config import MixtureConfig
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.gate_config import Top2Config

SECTIONS = ("scaling", "overhead", "mfu", "peers")
OURS = "ours"
OWN_SECTIONS = SECTIONS[:3]
PEERS = ("transformers", "joeynmt", "eole")
WITHOUT_EXPERTS = {
    "joeynmt": "not run: it has no MoE layers",
    "eole": "not run: its encoder has no MoE layers",
}


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A training run. processes, threads: of each. malloc: whether it gets our processes' allocator settings, which
    ours always do."""

    name: str
    processes: int
    threads: int
    malloc: bool = True

    @property
    def label(self) -> str:
        return self.name if self.name == OURS or not self.malloc else f"{self.name} + malloc"


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Contenders that train the same model side by side, taking turns round by round. sections: whose rows come from
    it. rounds: (steps, threads) of each; the first is warm-up, which is left out. last: number of threads of one more
    round of one step, by contenders of one process and more threads; 0 is none."""

    sections: tuple[str, ...]
    device: str
    dtype: str
    model: ModelConfig
    batch: BatchConfig
    rounds: tuple[tuple[int, int], ...]
    contenders: tuple[Contender, ...]
    vocabulary: tuple[str, ...]
    last: int = 0

    def rounds_of(self, contender: Contender) -> list[tuple[int, int]]:
        rounds = [(steps, contender.threads) for steps, _ in self.rounds]
        more = self.last and contender.processes == 1 and contender.threads > self.last
        return [*rounds, (1, self.last)] if more else rounds

    @property
    def title(self) -> str:
        m = self.model
        experts = f" E={m.moe.num_experts}" if m.moe.num_experts else ""
        return f"d={m.dim}{experts} {m.encoder_layers}+{m.decoder_layers}"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and effort of a whole run, and what it covers unless told otherwise. models: by the number of experts made
    MoE or dense. rows, groups: of a group and of a step, in our own sections and among peers. vocabulary: overrides of
    its configuration."""

    models: tuple[ModelConfig, ...]
    dtypes: tuple[str, ...]
    sections: tuple[str, ...]
    experts: int
    processes: int
    rows: tuple[int, int]
    source: int
    target: int
    groups: tuple[int, int]
    rounds: int
    steps: int
    peer_steps: int
    vocabulary: tuple[str, ...] = ("vocab=shared",)
    pairs: str = "de-en,fr-en,es-en,ru-en,zh-Hans-en,ja-en,tr-en"
    warm: int = field(default=1)

    def batch(self, *, peers: bool) -> BatchConfig:
        shape = GroupShape(rows=self.rows[peers], source=self.source, target=self.target)
        return BatchConfig(shapes=[shape], groups_per_step=self.groups[peers], mixture=MixtureConfig(), window_steps=8)


def transformer(dim: int, *, layers: int, hidden: int = 0, heads: int = 0, head_dim: int = 0) -> ModelConfig:
    """A dense model, by default of the usual proportions."""
    return ModelConfig(
        dim=dim,
        ffn_dim=hidden or 4 * dim,
        heads=heads or dim // 64,
        head_dim=head_dim,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=0.1,
    )


CPU = Scale(
    models=(transformer(512, layers=6), transformer(256, layers=3)),
    dtypes=("fp32", "bf16"),
    sections=SECTIONS,
    experts=8,
    processes=2,
    rows=(20, 10),
    source=96,
    target=72,
    groups=(8, 2),
    rounds=3,
    steps=1,
    peer_steps=2,
)
CUDA = Scale(  # GShard's MoE(16E, 12L), arXiv:2006.16668, table 1 and appendix A.2
    models=(transformer(1024, layers=6, hidden=8192, heads=16, head_dim=128),),
    dtypes=("bf16",),
    sections=("mfu",),
    experts=16,
    processes=1,
    rows=(128, 128),
    source=96,
    target=72,
    groups=(8, 8),
    rounds=3,
    steps=8,
    peer_steps=8,
    vocabulary=("vocab.source_size=64000", "vocab.target_size=32000"),
    warm=4,
)
QUICK = Scale(
    models=(transformer(64, layers=2),),
    dtypes=("fp32",),
    sections=SECTIONS,
    experts=4,
    processes=2,
    rows=(4, 4),
    source=96,
    target=72,
    groups=(2, 2),
    rounds=2,
    steps=2,
    peer_steps=2,
    vocabulary=("vocab=shared", "vocab.source_size=3000", "vocab.target_size=3000"),
    pairs="tr-en",
)


def contests(
    scale: Scale, *, device: str, sections: Sequence[str], dtypes: Sequence[str], peers: Sequence[str]
) -> list[Contest]:
    """Our own sections share one contest for each model and dtype; peers have a dense one and one with experts, of the
    first model in float32."""
    planned: list[Contest] = []
    own = tuple(section for section in OWN_SECTIONS if section in sections)
    rounds = tuple((steps, 0) for steps in (scale.warm, *(scale.steps,) * scale.rounds))
    if own:
        counts = sorted({1, scale.processes} if "scaling" in own else {scale.processes})
        for model in scale.models:
            for dtype in dtypes:
                contest = Contest(
                    sections=own,
                    device=device,
                    dtype=dtype,
                    model=with_experts(model, scale.experts),
                    batch=scale.batch(peers=False),
                    rounds=rounds,
                    contenders=tuple(Contender(name=OURS, processes=n, threads=1) for n in counts),
                    vocabulary=scale.vocabulary,
                )
                planned.append(contest)
    if "peers" in sections:
        rounds = tuple((steps, 0) for steps in (scale.warm, *(scale.peer_steps,) * scale.rounds))
        for experts in (0, scale.experts):
            names = [name for name in peers if not experts or name not in WITHOUT_EXPERTS]
            contest = Contest(
                sections=("peers",),
                device=device,
                dtype="fp32",
                model=with_experts(scale.models[0], experts),
                batch=scale.batch(peers=True),
                rounds=rounds,
                contenders=(
                    Contender(name=OURS, processes=scale.processes, threads=1),
                    *(each for name in names for each in ways(name, scale.processes)),
                ),
                vocabulary=scale.vocabulary,
                last=1,
            )
            planned.append(contest)
    return planned


def ways(peer: str, cores: int) -> list[Contender]:
    """How a peer may use the cores: one process of as many threads, with and without our allocator settings, and where
    it can train on several processes without a GPU, that too."""
    found = [Contender(name=peer, processes=1, threads=cores, malloc=malloc) for malloc in (False, True)]
    if peer == "transformers":
        found.append(Contender(name=peer, processes=cores, threads=1))
    return found


def with_experts(model: ModelConfig, experts: int) -> ModelConfig:
    """Every second layer with experts of the dense layers' size, top-2 with every second choice kept, as its peers."""
    if not experts:
        return model
    moe = MoEConfig(num_experts=experts, expert_dim=model.ffn_dim, gate=Top2Config(second="all"))
    return replace(model, moe=moe)
