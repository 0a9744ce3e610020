"""A finished run of `make train`, to translate with, to export or to prune."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.batch.config import BatchConfig
from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair, parse_pair
from pipeline.dag.artifact import Artifact
from pipeline.dag.reuse import check_member_vocabulary, check_members, check_models, trained_config
from pipeline.dag.store import Store
from pipeline.dag.system import EarlierRun
from pipeline.decode.config import DecodeConfig, with_neutral
from pipeline.decode.experts.pruning import Pruning
from pipeline.decode.job.calls import TranslatorSpec
from pipeline.decode.job.replica import runtime_of_replica
from pipeline.decode.text.line import Long
from pipeline.earlier_runs import MEMBERS, RECORD, record_path
from pipeline.jobs.default_precision import check_int8, fp32_caution
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.model.config import ModelConfig
from pipeline.schema import build
from pipeline.spelling import suggestion

logger = logging.getLogger(__name__)

PRUNED = "pruned"  # directory of a run's prunings
ENSEMBLE = "decode.ensemble"


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A finished run, with its model and its vocabulary.

    decode: the settings by which it translated its test sets.
    max_source_tokens: the longest source that it was trained on, tag and `</s>` counted.
    directory: the directory of its results.
    experts: path of the pruning by which it translates, or empty.
    ensemble: models that translate together with its own.
    recorded_members: models of `decode.ensemble` that translated its test sets, `<stage>/<key>` by name.
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
    ensemble: tuple[Artifact, ...] = ()
    recorded_members: Mapping[str, str] = field(default_factory=dict)

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
            recorded_members=record.get(MEMBERS, {}),
        )

    @property
    def title(self) -> str:
        """The run as messages name it."""
        return f"run {self.name} with its {ENSEMBLE}" if self.ensemble else f"run {self.name}"

    def as_earlier_run(self) -> EarlierRun:
        """Return what a new run needs of this one, to start from it or to translate with it."""
        return EarlierRun(
            run=self.name, pairs=self.pairs, vocabulary=self.vocabulary, model=self.model, decode=self.decode
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

    def with_ensemble(self, decode: DecodeConfig, runtime: RuntimeConfig, *, runs: Path, store: Store) -> "FinishedRun":
        """Return the run with the models of `decode.ensemble`, and with the pairs that all of them translate.

        A source may be as long as in the training of each. Logs a warning about pairs that are left out, and about a
        run whose name had another model when this run translated its test sets.
        Raises ValueError if a run cannot be used, has another vocabulary or no pair in common, or if the ensemble is
        to be cut over processes or has a pruning.
        """
        if not decode.ensemble:
            return self
        if self.experts:
            raise ValueError(
                f"experts={Path(self.experts).stem}: a pruned model translates alone; set {ENSEMBLE}=[], or leave "
                "experts out"
            )
        try:
            members = find_ensemble(decode, runtime, self.name, runs=runs, store=store, model=self.model)
            common = tuple(pair for pair in self.pairs if all(pair in member.pairs for member in members))
            earlier = [member.as_earlier_run() for member in members]
            check_members(earlier, self.name, common or self.pairs, trained_config(self.model), decode)
            for other in earlier:
                check_member_vocabulary(other, self.name, self.vocabulary)
        except ValueError as error:
            if decode.ensemble != self.decode.ensemble:
                raise
            raise ValueError(
                f"run {self.name} translated its test sets together with other runs: {error}; to translate by its own "
                f"model alone, set {ENSEMBLE}=[]"
            ) from error
        for name, member in zip(decode.ensemble, members, strict=True):
            model = f"{member.model.stage}/{member.model.key}"
            if self.recorded_members.get(name, model) != model:
                logger.warning(
                    "warning: %s=%s: run %s translated its test sets with another model of that name, %s; now it is %s",
                    *(ENSEMBLE, name, self.name, self.recorded_members[name], model),
                )
            if lacking := [pair.name for pair in self.pairs if pair not in member.pairs]:
                logger.warning(
                    "warning: %s=%s: it was not trained on %s, which run %s does not translate with it",
                    *(ENSEMBLE, name, ", ".join(lacking), self.name),
                )
        return replace(
            self,
            pairs=common,
            ensemble=tuple(member.model for member in members),
            max_source_tokens=min(run.max_source_tokens for run in (self, *members)),
        )

    def decode_with(self, settings: Mapping[str, Any], device: str) -> DecodeConfig:
        """Return the settings by which the run translated its test sets, with those given that are not None.

        Logs a warning about fp32 on a GPU. Raises ValueError for a setting that does not exist.

        device: runtime.device of the command that translates.
        """
        changes = with_neutral({key: value for key, value in settings.items() if value is not None})
        decode = build(DecodeConfig, {**asdict(self.decode), **changes}, "decode")
        if decode.precision == "int8":
            check_int8(device)
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
            ensemble=tuple(str(model.path / "checkpoints") for model in self.ensemble),
        )

    def check_cut(self, runtime: RuntimeConfig, decode: DecodeConfig) -> None:
        """Raise ValueError if `runtime.ep` processes are to share the experts of the run, and cannot.

        decode: settings of the command that translates.
        """
        ep = runtime.ep
        if runtime_of_replica(runtime).ep == 1:
            return
        if decode.ensemble:
            raise ValueError(
                f"runtime.ep={ep}: the models of {ENSEMBLE} are whole in every process; set it to 1, or {ENSEMBLE}=[]"
            )
        if self.experts:
            raise ValueError(
                f"runtime.ep={ep}: a pruned model is not cut further; set it to 1, or leave out experts="
                f"{Path(self.experts).stem}"
            )
        model = build(ModelConfig, self.record()["config"]["model"], "model")
        if not model.moe_layers():
            raise ValueError(f"runtime.ep={ep}: run {self.name} has no experts that processes could share; set it to 1")
        E = model.moe.num_experts
        if E % ep:
            raise ValueError(
                f"runtime.ep={ep} does not divide the {E} experts of run {self.name}, which so many processes would "
                f"share; choose one of {[n for n in range(2, E + 1) if E % n == 0]}, and a multiple of it for "
                "runtime.processes"
            )

    def pair(self, text: str) -> LangPair:
        """Return the direction that a user means. Raises ValueError if the run was not trained on it."""
        pair = self.named_pair(text)
        if pair not in self.pairs:
            raise ValueError(
                f"{self.title} does not translate {pair}, but {', '.join(map(str, self.pairs))}; train one that "
                f'does (make train LANG_PAIRS="{pair}"), or choose another direction'
            )
        return pair

    def named_pair(self, text: str, codes: Collection[str] = ()) -> LangPair:
        """Return the direction that a user means, in the languages of the run's directions and those of `codes`.

        Raises ValueError for another language.
        """
        codes = {code for pair in self.pairs for code in (pair.src, pair.tgt)} | {*codes}
        try:
            return parse_pair(text, codes)
        except ValueError as error:
            trained = ", ".join(pair.name for pair in self.pairs)
            raise ValueError(f"{self.title}, which translates {trained}: {error}") from error


def find_ensemble(
    decode: DecodeConfig,
    runtime: RuntimeConfig,
    name: str,
    *,
    runs: Path,
    store: Store,
    model: Artifact | None = None,
) -> Sequence[FinishedRun]:
    """Return the runs of `decode.ensemble`.

    name, model: of the run that they translate with; None if it is not trained yet.
    Raises ValueError if a run cannot be used or cannot decode with these settings, if a model would count twice, or if
    experts are to be cut.
    """
    if not decode.ensemble:
        return ()
    if name in decode.ensemble:
        raise ValueError(f"{ENSEMBLE}={list(decode.ensemble)} names the run itself, which takes part anyway")
    if runtime.decode_experts == "sharded":
        raise ValueError(
            f"runtime.decode_experts=sharded: the models of {ENSEMBLE} are whole in every process; set it to replicated"
        )
    members = [FinishedRun.open(member, runs=runs, store=store, setting=ENSEMBLE) for member in decode.ensemble]
    for member_name, member in zip(decode.ensemble, members, strict=True):
        if member.directory.resolve() == (runs / name).resolve():
            raise ValueError(f"{ENSEMBLE}={list(decode.ensemble)}: {member_name} is the run itself; leave it out")
    check_models(decode, [member.model for member in members], name, model)
    return members


def _decode_settings(record: dict[str, Any]) -> dict[str, Any]:
    """Return the decoding settings of a run, without the one that versions before 0.2.1 had for the batch size."""
    return {key: value for key, value in record["config"]["decode"].items() if key != "batch_sentences"}
