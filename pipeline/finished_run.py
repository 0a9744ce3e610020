"""A finished run of `make train`, to translate with, to export or to prune."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.batch.config import BatchConfig
from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair, parse_pair
from pipeline.dag.artifact import Artifact
from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.pruning import Pruning
from pipeline.decode.job.workers import TranslatorSpec
from pipeline.decode.text.line import Long
from pipeline.earlier_runs import RECORD, record_path
from pipeline.jobs.default_precision import fp32_caution
from pipeline.schema import build
from pipeline.spelling import suggestion

logger = logging.getLogger(__name__)

PRUNED = "pruned"  # directory of a run's prunings


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A finished run, with its model and its vocabulary.

    decode: the settings by which it translated its test sets.
    max_source_tokens: the longest source that it was trained on, tag and `</s>` counted.
    directory: the directory of its results.
    experts: path of the pruning by which it translates, or empty.
    """

    name: str
    commit: str
    pairs: tuple[LangPair, ...]
    model: Artifact
    vocabulary: Artifact
    decode: DecodeConfig
    max_source_tokens: int
    directory: Path = Path()
    experts: str = ""

    @classmethod
    def open(cls, run: str, *, runs: Path, store: Store, setting: str = "NAME") -> "FinishedRun":
        """Return the run of this name below `runs`, or in this directory. Raises ValueError if it cannot be used.

        setting: the word or key by which the user named the run, for messages.
        """
        path = record_path(run, runs, ROOT, setting)
        record = json.loads(path.read_text(encoding="utf-8"))
        (system,) = record["systems"]["moe"]
        if "artifacts" not in system:
            raise ValueError(
                f"{path} does not say which artifacts its model is in, as an older version wrote it; run the command "
                "that made it again (make train), which trains nothing anew"
            )
        try:
            model, vocabulary = (store.hold(*system["artifacts"][name].split("/")) for name in ("model", "vocabulary"))
        except ValueError as error:
            place = record["config"]["runtime"]["artifacts"]
            raise ValueError(f"{setting}={run}: {error} (it was {place})") from error
        return cls(
            name=record["name"],
            directory=path.parent,
            commit=record["commit"],
            pairs=tuple(LangPair(codes["source"], codes["target"]) for codes in record["languages"].values()),
            model=model,
            vocabulary=vocabulary,
            decode=build(DecodeConfig, _decode_settings(record), f"{path}: config.decode"),
            max_source_tokens=build(BatchConfig, record["config"]["batch"], f"{path}: config.batch").max_source,
        )

    def inputs(self, store: Store) -> dict[str, Artifact]:
        """Return the vocabulary and the encoded rows of each pair that its model was trained on.

        Raises ValueError for a model that was not trained here.
        """
        inputs = store.inputs(self.model)
        if not any(pair.name in inputs for pair in self.pairs):
            raise ValueError(
                f"run {self.name} was imported (docs/import.md), so there is no text that it was trained on; fine-tune "
                "it on a corpus, and name that run"
            )
        return inputs

    def record(self) -> dict[str, Any]:
        """Return the content of run.json."""
        record: dict[str, Any] = json.loads((self.directory / RECORD).read_text(encoding="utf-8"))
        return record

    def pruned(self, name: str) -> "FinishedRun":
        """Return the run with the experts and the pairs of a pruning of `make prune`; the run itself for an empty name.

        Raises ValueError where the pruning does not exist, or is of another model.
        """
        if not name:
            return self
        path = self.directory / PRUNED / f"{name}.json"
        if not path.is_file():
            names = sorted(file.stem for file in path.parent.glob("*.json"))
            hint = suggestion(name, names) if names else "; `make prune` makes one"
            raise ValueError(f"experts={name}: run {self.name} has no such pruning{hint}")
        pruning = Pruning.read(path)
        if pruning.model != f"{self.model.stage}/{self.model.key}":
            raise ValueError(
                f"experts={name}: {path} is of model {pruning.model}, and run {self.name} has another by now; make it "
                "again (make prune with REPLACE=1)"
            )
        pairs = tuple(pair for pair in self.pairs if pair.name in pruning.pairs)
        return replace(self, pairs=pairs, experts=str(path))

    def decode_with(self, settings: Mapping[str, Any], device: str) -> DecodeConfig:
        """Return the settings by which the run translated its test sets, with those given that are not None.

        Logs a warning about fp32 on a GPU. Raises ValueError for a setting that does not exist.

        device: runtime.device of the command that translates.
        """
        changes = {key: value for key, value in settings.items() if value is not None}
        decode = build(DecodeConfig, {**asdict(self.decode), **changes}, "decode")
        if caution := fp32_caution(device, decode=decode.precision):
            logger.warning("warning: %s", caution)
        return decode

    def spec(self, decode: DecodeConfig | None = None, *, long: Long = "split") -> TranslatorSpec:
        """Return the files and settings that translating processes load. decode: by default the run's own."""
        return TranslatorSpec(
            checkpoints=str(self.model.path / "checkpoints"),
            vocabulary=str(self.vocabulary.path),
            decode=decode or self.decode,
            max_source_tokens=self.max_source_tokens,
            long=long,
            experts=self.experts,
        )

    def pair(self, text: str) -> LangPair:
        """Return the direction that a user means. Raises ValueError if the run was not trained on it."""
        trained = ", ".join(pair.name for pair in self.pairs)
        codes = {code for pair in self.pairs for code in (pair.src, pair.tgt)}
        try:
            pair = parse_pair(text, codes)
        except ValueError as error:
            raise ValueError(f"run {self.name}, which translates {trained}: {error}") from error
        if pair not in self.pairs:
            raise ValueError(
                f"run {self.name} does not translate {pair}, but {trained}; train one that does "
                f'(make train LANG_PAIRS="{pair}"), or choose another direction'
            )
        return pair


def _decode_settings(record: dict[str, Any]) -> dict[str, Any]:
    """Return the decoding settings of a run, without the one that versions before 0.2.1 had for the batch size."""
    return {key: value for key, value in record["config"]["decode"].items() if key != "batch_sentences"}
