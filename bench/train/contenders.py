"""The contests and their contenders, from the options of the command line. This module does not import torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.batch.config import BatchConfig, GroupShape
from pipeline.batch.mixture_config import MixtureConfig
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.model.moe.gates.config import Top2Config

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
    """A training run of `processes`, each with so many `threads`. name: OURS or one of PEERS."""

    name: str
    processes: int
    threads: int

    @property
    def is_ours(self) -> bool:
        return self.name == OURS


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Contenders that train the same model side by side, taking turns round by round.

    sections: the sections to which its rows belong.
    rounds: optimizer steps of each round; the first round is a warm-up without a row.
    vocabulary: overrides of the vocabulary's configuration.
    router_steps, router_batch: steps and batches with which our contenders' router was trained before.
    """

    sections: tuple[str, ...]
    device: str
    dtype: str
    model: ModelConfig
    batch: BatchConfig
    rounds: tuple[int, ...]
    contenders: tuple[Contender, ...]
    vocabulary: tuple[str, ...]
    router_steps: int
    router_batch: BatchConfig

    @property
    def title(self) -> str:
        m = self.model
        experts = f" E={m.moe.num_experts}" if m.moe.num_experts else ""
        return f"d={m.dim}{experts} {m.encoder_layers}+{m.decoder_layers}"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes and budgets of a whole run, and the defaults of its options.

    models: dense models, to which contests add `experts`.
    rows, groups: rows of a group and groups of a step, each in our own sections and among peers.
    rounds: timed rounds.
    warm, steps: in our own sections, optimizer steps of the first round and of each timed round.
    peer_steps: optimizer steps of every round among peers.
    """

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
    warm: int = 1
    router_steps: int = 300

    def batch(self, *, peers: bool) -> BatchConfig:
        shape = GroupShape(rows=self.rows[peers], source=self.source, target=self.target)
        return BatchConfig(shapes=[shape], groups_per_step=self.groups[peers], mixture=MixtureConfig(), window_steps=8)


def transformer(dim: int, *, layers: int, hidden: int = 0, heads: int = 0, head_dim: int = 0) -> ModelConfig:
    """Return a dense model. hidden, heads: by default 4 times the dimension, and one head for 64 of it."""
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
    rounds=5,
    steps=1,
    peer_steps=5,
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
    rounds=5,
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
    router_steps=4,
)


def contests(
    scale: Scale, *, device: str, sections: Sequence[str], dtypes: Sequence[str], peers: Sequence[str]
) -> list[Contest]:
    """Return the contests of the given sections.

    Our own sections share one contest for each model and dtype. Each peer meets ours in its own contest, so that memory
    has no third run. These contests are in float32 with the first model: dense, and with experts if the peer has them.
    """
    contest_list: list[Contest] = []
    own = tuple(section for section in OWN_SECTIONS if section in sections)
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
                    rounds=(scale.warm, *(scale.steps,) * scale.rounds),
                    contenders=tuple(Contender(name=OURS, processes=n, threads=1) for n in counts),
                    vocabulary=scale.vocabulary,
                    router_steps=scale.router_steps,
                    router_batch=scale.batch(peers=True),
                )
                contest_list.append(contest)
    if "peers" in sections:
        for experts in (0, scale.experts):
            for name in peers:
                if experts and name in WITHOUT_EXPERTS:
                    continue
                contest = Contest(
                    sections=("peers",),
                    device=device,
                    dtype="fp32",
                    model=with_experts(scale.models[0], experts),
                    batch=scale.batch(peers=True),
                    rounds=(scale.peer_steps,) * (1 + scale.rounds),
                    contenders=(
                        Contender(name=OURS, processes=scale.processes, threads=1),
                        *ways(name, scale.processes),
                    ),
                    vocabulary=scale.vocabulary,
                    router_steps=scale.router_steps,
                    router_batch=scale.batch(peers=True),
                )
                contest_list.append(contest)
    return contest_list


def ways(peer: str, cores: int) -> list[Contender]:
    """Return the ways in which a peer can use the cores.

    One way is one process with a thread for each core. A peer that can train on several CPU processes also gets a
    process for each core.
    """
    one_process = Contender(name=peer, processes=1, threads=cores)
    if peer != "transformers":
        return [one_process]
    return [one_process, Contender(name=peer, processes=cores, threads=1)]


def with_experts(model: ModelConfig, experts: int) -> ModelConfig:
    """Return the model with experts in every second layer.

    Experts have the size of the dense layers. The gate is top-2 and keeps every second choice, as the peers do.
    """
    if not experts:
        return model
    moe = MoEConfig(num_experts=experts, expert_dim=model.ffn_dim, gate=Top2Config(second="all"))
    return replace(model, moe=moe)
