"""`make export`: a finished run as a directory that another program loads."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import ROOT
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.export.card import model_card
from pipeline.export.config import ExportConfig
from pipeline.files import check_writable, remove_tree
from pipeline.finished_run import FinishedRun

if TYPE_CHECKING:
    from pipeline.model.transformer import Transformer

logger = logging.getLogger(__name__)

# settings of every export
EXPORTED = {"search": "beam", "coverage_penalty": 0.0, "capacity_factor": 0.0, "choose": "likeliest", "ensemble": ()}


@dataclass(frozen=True, kw_only=True)
class Export:
    """The parts of a run that a format needs.

    run: the run, with the exported pairs alone.
    decode: the run's settings with those of the command.
    extracted: True to export the dense model of the pairs.
    """

    run: FinishedRun
    decode: DecodeConfig
    target: str
    extracted: bool

    @property
    def taken_out(self) -> list[str]:
        """The pairs, `de:en`, whose dense model is taken out of the run's; none for the run's own model."""
        return [f"{pair.src}:{pair.tgt}" for pair in self.run.pairs] if self.extracted else []

    def card(self, model: "Transformer | None", *, library: str, note: str = "", code: Sequence[str] = ()) -> str:
        """Return the text of README.md.

        model: the exported one, None for adapters.
        note: remark on the weights.
        code: lines of a program, by default the usual.
        """
        return model_card(
            self.run,
            self.run.directory,
            library=library,
            target=self.target,
            not_exported=not_exported(self.run.decode),
            note=note,
            code=code,
            parameters=sum(weight.numel() for weight in model.parameters()) if model and self.extracted else 0,
        )


def export_run(config: ExportConfig) -> Path:
    """Write the export to the directory `out` and return it. Raises ValueError if the format cannot hold the model."""
    runs, store = ROOT / config.runtime.runs, Store(ROOT / config.runtime.artifacts)
    run = FinishedRun.open(config.run, runs=runs, store=store)
    if config.pairs:
        run = replace(run, pairs=tuple(dict.fromkeys(run.pair(text) for text in config.pairs)))
    export = Export(
        run=run,
        decode=run.decode_with({**config.decode, "precision": "fp32"}, "cpu"),  # in which every export is written
        target=_target(config.target, run),
        extracted=bool(config.pairs),
    )
    out = (ROOT / config.out).resolve()  # a link stays, and its directory is filled
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out={out} exists and is not an empty directory; remove it or choose another")
    check_writable(out.parent, "out")
    fresh = out.with_name(f".{out.name}.partial")
    if fresh.exists():
        remove_tree(fresh)
    fresh.mkdir()
    try:
        _writer(config.format)(export, fresh)
    except BaseException:
        remove_tree(fresh)
        raise
    fresh.replace(out)
    for name, setting in not_exported(export.decode).items():
        logger.warning(
            "decode.%s=%s is not in the export, which translates as with %s", name, setting, _shown(EXPORTED[name])
        )
    logger.info("exported %s to %s; how to use it: %s", run.name, config.out, Path(config.out) / "README.md")
    return out


def not_exported(decode: DecodeConfig) -> dict[str, Any]:
    """Return the settings of decoding that an export does not have, as far as they have other values than there."""
    settings = {name: getattr(decode, name) for name in EXPORTED}
    return {name: _shown(value) for name, value in settings.items() if value != EXPORTED[name]}


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _writer(name: str) -> Callable[[Export, Path], None]:
    if name == "huggingface":
        from pipeline.export.huggingface import write_huggingface

        return write_huggingface
    if name == "peft":
        from pipeline.export.peft import write_peft

        return write_peft
    from pipeline.export.ctranslate2 import write_ctranslate2

    return write_ctranslate2


def _target(target: str, run: FinishedRun) -> str:
    targets = list(dict.fromkeys(pair.tgt for pair in run.pairs))
    if target and target not in targets:
        raise ValueError(f"target={target}: run {run.name} translates into {', '.join(targets)}; choose one of them")
    return target or targets[0]
