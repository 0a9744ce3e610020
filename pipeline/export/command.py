"""`make export`: a finished run as a directory that another program loads."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.config import ROOT
from pipeline.decode.config import DecodeConfig
from pipeline.export.card import model_card
from pipeline.export.config import ExportConfig
from pipeline.schema import build
from pipeline.stage import Store, check_writable, remove_tree
from pipeline.translation import FinishedRun, record_path

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Export:
    """What a format is made of. directory: of the run. decode: its settings with those of the command."""

    run: FinishedRun
    directory: Path
    decode: DecodeConfig
    target: str

    def card(self, *, library: str, note: str = "") -> str:
        """The text of README.md. note: what is special about the weights."""
        return model_card(self.run, self.directory, library=library, target=self.target, decode=self.decode, note=note)


def export_run(config: ExportConfig) -> Path:
    """Write the export to the directory `out`, which is returned. Raises ValueError on what cannot be exported."""
    runs, store = ROOT / config.runtime.runs, Store(ROOT / config.runtime.artifacts)
    run = FinishedRun.open(config.run, runs=runs, store=store)
    given = {key: value for key, value in config.decode.items() if value is not None}
    export = Export(
        run=run,
        directory=record_path(config.run, runs).parent,
        decode=build(DecodeConfig, {**asdict(run.decode), **given}, "decode"),
        target=_target(config.target, run),
    )
    out = ROOT / config.out
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
    logger.info("exported %s to %s; how to use it: %s", run.name, config.out, Path(config.out) / "README.md")
    return out


def _writer(name: str) -> Callable[[Export, Path], None]:
    if name == "huggingface":
        from pipeline.export.huggingface import write_huggingface

        return write_huggingface
    from pipeline.export.ctranslate2 import write_ctranslate2

    return write_ctranslate2


def _target(asked: str, run: FinishedRun) -> str:
    targets = list(dict.fromkeys(pair.tgt for pair in run.pairs))
    if asked and asked not in targets:
        raise ValueError(f"target={asked}: run {run.name} translates into {', '.join(targets)}; choose one of them")
    return asked or targets[0]
