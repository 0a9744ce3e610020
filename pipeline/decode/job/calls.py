"""A call of a `TranslatorPool`, and how a process makes it: alone, or with those that share its model's experts.

Free of torch until the model is loaded.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.decode.config import DecodeConfig
from pipeline.decode.job.drops import DropRecord, drop_record
from pipeline.decode.job.replica import GivenUp
from pipeline.decode.text.line import Line, Long, Translated
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.stopping import Stopped

if TYPE_CHECKING:
    from pipeline.decode.text.translator import Translator
    from pipeline.jobs.rendezvous import World

TITLE = "translate"
GIVEN_UP = b"\1"


@dataclass(frozen=True, kw_only=True)
class TranslatorSpec:
    """Values from which a process makes a Translator.

    checkpoints, vocabulary: directories.
    max_source_tokens, long: as in `Translator`.
    experts: path of a pruning, or empty for all experts.
    ensemble: directories of checkpoints of the runs of `decode.ensemble`.
    """

    checkpoints: str
    vocabulary: str
    decode: DecodeConfig
    max_source_tokens: int
    long: Long = "split"
    experts: str = ""
    ensemble: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request to the processes of a replica. Without lines they only load the model.

    runtime: settings of the replica's processes.
    flags: descriptor of a file with one byte for each replica, which tells if its call is given up.
    """

    spec: TranslatorSpec
    runtime: RuntimeConfig
    config: DecodeConfig
    flags: int
    lines: Sequence[Line] = ()


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of one process: the translations of its lines, and the choices that a capacity dropped."""

    translations: list[Translated]
    drops: DropRecord


_translators: dict[TranslatorSpec, "Translator"] = {}  # what a worker has loaded


def perform(call: Call) -> Result:
    """Translate this process's share of the lines of a call. It runs in a worker."""
    flag = _Flag(call.flags)
    if call.spec not in _translators:
        _translators[call.spec] = _load(call.spec, call.runtime, flag)
    translator = _translators[call.spec].using(call.config)
    if not call.lines:  # the model is loaded to the end, even if the call that waits for it is given up meanwhile
        return Result(translations=[], drops=drop_record(translator.drops))
    peers = translator.peers  # they give up together, at their next token

    def check() -> None:
        if peers is None and flag:
            raise Stopped(TITLE)

    lines = call.lines[int(os.environ["RANK"]) :: int(os.environ["WORLD_SIZE"])]
    try:
        outcomes = dict(translator.translate(lines, check=check))
    except Stopped as stopped:
        raise GivenUp(f"{TITLE}: nobody waits for it") from stopped
    except ValueError:
        if peers is not None:
            peers.leave()
        raise
    return Result(translations=[outcomes[index] for index in range(len(lines))], drops=drop_record(translator.drops))


def _load(spec: TranslatorSpec, runtime: RuntimeConfig, flag: "_Flag") -> "Translator":
    from pipeline.vocab.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(Path(spec.vocabulary))

    from pipeline.decode.job.share import load_translating
    from pipeline.decode.text.translator import Translator
    from pipeline.jobs.device import Place

    limit = spec.max_source_tokens
    model, peers = load_translating(
        [Path(path) for path in (spec.checkpoints, *spec.ensemble)],
        vocabulary,
        spec.decode,
        runtime,
        Place.take(runtime),
        longest=limit,
        experts=spec.experts,
        stop=flag,
        title=TITLE,
    )
    return Translator(model, vocabulary, spec.decode, max_source_tokens=limit, long=spec.long, peers=peers)


class _Flag:
    """A flag that is true when nobody waits for the call of this process's replica any more."""

    def __init__(self, flags: int) -> None:
        self._flags, self._slot = flags, int(os.environ["LOCAL_RANK"]) // int(os.environ["WORLD_SIZE"])

    def __bool__(self) -> bool:
        return os.pread(self._flags, 1, self._slot) == GIVEN_UP

    def watch(self, world: "World", *, limit: int) -> None:
        """End this process when another one of the replica is silent for so many seconds."""
        from pipeline.jobs.heartbeat import Heartbeat
        from pipeline.jobs.process import leave_report

        Heartbeat(world, limit=limit, report=leave_report, remedy="those that share its model have ended with it")
