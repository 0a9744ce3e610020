"""The plan of a training run: the memory, time and money that it takes on a cluster."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pipeline.corpus.languages import split_pair
from pipeline.model.flops import TRAINING_FACTOR, forward_flops
from pipeline.plan import parts, roofline
from pipeline.plan.collectives import engine_collectives, model_collectives
from pipeline.plan.memory import Memory, memory
from pipeline.plan.node_traffic import NodeTraffic, node_traffic
from pipeline.plan.parameters import Parameters, count
from pipeline.plan.workload import Adapters, Collective, Device, Setup, Work, Workload

if TYPE_CHECKING:
    from pipeline.config import RunConfig

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, kw_only=True)
class Flops:
    """FLOPs of matrix products in training.

    useful_per_token: FLOPs that a target token of a full group needs, with its share of the source tokens.
    useful_per_step: the same for a step of all devices together.
    executed_per_step: FLOPs that all devices execute in a step, with empty slots of experts, recomputation, and work
        that several devices repeat.
    """

    useful_per_token: float
    useful_per_step: float
    executed_per_step: float


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The collectives of one kind in a step, and the time that they take.

    processes: number of processes in each collective.
    link: network if the collectives leave the node, else node.
    bytes_inside, bytes_outside: bytes that one process sends inside its node and out of it.
    seconds: time of all of them.
    """

    collective: Collective
    processes: int
    link: Literal["node", "network"]
    bytes_inside: float
    bytes_outside: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Step:
    """The time of a step.

    seconds: the sum of `parts`, which do not overlap.
    parts: seconds by part of the work and by kind of collective.
    tokens_per_second: target tokens of full groups.
    mfu: useful FLOPs over the peak of the devices.
    """

    seconds: float
    parts: dict[str, float]
    tokens_per_second: float
    mfu: float


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The time and money of a whole training.

    tokens: target tokens of the training, 0 for no budget.
    cost: US dollars.
    """

    tokens: int
    days: float
    device_hours: float
    cost: float


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Training of one workload in one setup on devices of one kind.

    node_traffic: None for a model without a limit of nodes, and on one node.
    """

    workload: Workload
    setup: Setup
    device: Device
    parameters: Parameters
    memory: Memory
    flops: Flops
    collectives: list[Transfer]
    node_traffic: NodeTraffic | None
    step: Step
    budget: Budget

    def to_json(self) -> dict[str, Any]:
        layout = self.setup.layout
        return {
            "recipe": self.workload.recipe,
            "device": self.device.name,
            "devices": layout.world,
            "layout": {
                "table": {letter: list(axes) for letter, axes in layout.table.items()},
                "sizes": dict(layout.sizes),
            },
            "zero_stage": self.setup.zero_stage,
            "recompute": self.setup.recompute,
            "parameters": asdict(self.parameters),
            "memory": {**asdict(self.memory), "total": self.memory.total, "fits": self.memory.fits},
            "flops": asdict(self.flops),
            "collectives": [_flat(transfer) for transfer in self.collectives],
            **({"node_traffic": asdict(self.node_traffic)} if self.node_traffic else {}),
            "step": asdict(self.step),
            "budget": asdict(self.budget),
        }


def make_plan(workload: Workload, setup: Setup, device: Device) -> TrainingPlan:
    """Plan a training run. Raises ValueError if the layout does not divide the model or the groups of a step."""
    check(workload, setup)
    layout = setup.layout
    works = [parts.times(work, setup.accumulation(workload)) for work in parts.micro_batch(workload, setup)]
    works.append(parts.optimizer(workload, setup))
    collectives = [*model_collectives(workload, setup), *engine_collectives(workload, setup)]
    transfers = [_transfer(collective, setup, device) for collective in collectives]
    flops = _flops(workload, setup, works)
    step = _step(workload, setup, device, works, transfers, flops)
    days = workload.max_tokens / step.tokens_per_second / DAY
    return TrainingPlan(
        workload=workload,
        setup=setup,
        device=device,
        parameters=count(workload, setup),
        memory=memory(workload, setup, device),
        flops=flops,
        collectives=transfers,
        node_traffic=node_traffic(workload, setup, device, collectives),
        step=step,
        budget=Budget(
            tokens=workload.max_tokens,
            days=days,
            device_hours=days * 24 * layout.world,
            cost=days * 24 * layout.world * device.price,
        ),
    )


def check(workload: Workload, setup: Setup) -> None:
    """Raise ValueError if groups do not divide over the processes. `Shape.part` checks the sizes of the model."""
    groups, processes = workload.groups_per_step, setup.layout.parts(setup.layout.batch_axes)
    if groups % processes:
        upper = (groups // processes + 1) * processes
        raise ValueError(
            f"batch.groups_per_step={groups} is not divisible by the {processes} processes that share groups out; "
            f"choose {upper} groups, or a number of processes that divides {groups}"
        )


def workload_of(config: "RunConfig") -> Workload:
    """Return the workload of a run whose groups all have the largest shape.

    A budget in steps becomes the tokens of that many steps of full groups.
    """
    shape, train, lora = config.batch.shapes[-1], config.train, config.train.lora
    source_vocabulary, target_vocabulary = _vocabularies(config)
    in_steps = train.max_steps * config.batch.groups_per_step * shape.rows * shape.target
    budgets = [tokens for tokens in (train.max_tokens, in_steps) if tokens > 0]
    return Workload(
        recipe=config.recipe,
        model=config.model,
        source_vocabulary=source_vocabulary,
        target_vocabulary=target_vocabulary,
        shared=config.vocab.shared,
        shape=shape,
        groups_per_step=config.batch.groups_per_step,
        precision="fp32" if train.precision == "fp32" else "bf16",  # fp16 is as large and as fast
        optimizer=train.optimizer,
        ema=train.ema > 0,
        max_tokens=min(budgets),
        trainable=train.components if isinstance(train.components, str) else tuple(train.components),
        adapters=Adapters(rank=lora.rank, targets=tuple(lora.targets), dropout=lora.dropout) if lora else None,
        rate_factors=tuple(sorted(train.rate_factors.items())),
    )


def _vocabularies(config: "RunConfig") -> tuple[int, int]:
    """Return the pieces of source and target, with the most that `vocab.extend` adds.

    It adds to a side with text of a new language. Of all pairs of a corpus (`all`), both sides may have some.
    """
    vocab, new = config.vocab, {*(config.vocab.extend or ())}
    sides = [reading for text in config.pairs for reading in split_pair(text)]
    grows = [bool(new) and (not sides or any(codes[place] in new for codes in sides)) for place in (0, 1)]
    source, target = [any(grows)] * 2 if vocab.shared else grows
    return vocab.source_size + vocab.extend_size * source, vocab.target_size + vocab.extend_size * target


def _flops(workload: Workload, setup: Setup, works: list[Work]) -> Flops:
    group = TRAINING_FACTOR * forward_flops(workload.model, workload.target_vocabulary).of_shape(workload.shape)
    return Flops(
        useful_per_token=group / (workload.shape.rows * workload.shape.target),
        useful_per_step=group * workload.groups_per_step,
        executed_per_step=sum(work.flops for work in works) * setup.layout.world,
    )


def _transfer(collective: Collective, setup: Setup, device: Device) -> Transfer:
    group = roofline.group(collective.axes, setup.layout, device.node)
    inside, outside = roofline.traffic(collective, group)
    return Transfer(
        collective=collective,
        processes=group.size,
        link="network" if group.crosses else "node",
        bytes_inside=inside,
        bytes_outside=outside,
        seconds=roofline.collective_seconds(collective, setup.layout, device),
    )


def _step(
    workload: Workload, setup: Setup, device: Device, works: list[Work], transfers: list[Transfer], flops: Flops
) -> Step:
    by_part: Counter[str] = Counter()
    for work in works:
        by_part[work.part] += roofline.seconds(work, device, workload.precision)  # type: ignore[assignment]
    for transfer in transfers:
        by_part[transfer.collective.kind] += transfer.seconds  # type: ignore[assignment]
    seconds = float(sum(by_part.values()))
    tokens = workload.groups_per_step * workload.shape.rows * workload.shape.target
    peak = device.flops[workload.precision] * setup.layout.world
    return Step(
        seconds=seconds,
        parts=dict(by_part),
        tokens_per_second=tokens / seconds,
        mfu=flops.useful_per_step / seconds / peak,
    )


def _flat(transfer: Transfer) -> dict[str, Any]:
    return {**asdict(transfer.collective), **{k: v for k, v in asdict(transfer).items() if k != "collective"}}
