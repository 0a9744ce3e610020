"""Checks of what a run takes from finished runs: of the vocabulary against the new text, and against the weights."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.corpus import Corpus, train_rows
from pipeline.dag.system import EarlierRun
from pipeline.decode.checkpoints import choose
from pipeline.decode.config import DecodeConfig
from pipeline.decode.mean_weights import check_mean
from pipeline.model.config import ModelConfig
from pipeline.schema import build
from pipeline.spelling import suggestion
from pipeline.train import retention
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.symbols import UNK

if TYPE_CHECKING:
    from pipeline.vocab.vocabulary import Vocabulary

MOST_BYTES = 0.02  # share of the pieces of a text that may be single bytes
SAMPLE_ROWS = 1000  # training rows of each pair on which that share is measured

logger = logging.getLogger(__name__)


def check_change(config: VocabConfig, vocabulary: Artifact) -> None:
    """Raise ValueError if the vocabulary of a run cannot be changed as `vocab.extend` and `vocab.trim` say."""
    from pipeline.vocab.pieces import Pieces
    from pipeline.vocab.vocabulary import Vocabulary

    if not config.changed:
        return
    loaded, run = Vocabulary.load(vocabulary.path), config.from_run
    if loaded.tags_by_side:
        _check_imported(config, vocabulary)
    else:
        for model in sorted(vocabulary.path.glob("*.model")):
            Pieces.read(model)
    for code, relative in (config.extend or {}).items():
        setting = f"vocab.extend.{code}={relative or 'null'}"
        if relative is None and not loaded.tags_by_side:
            if not config.extend_size:
                raise ValueError(
                    f"{setting} with vocab.extend_size=0 adds neither a tag nor pieces; leave {code} out, or set "
                    f"vocab.extend_size to 1 or more (the default is {VocabConfig.extend_size})"
                )
            continue
        if code in loaded.tags:
            alone = "" if loaded.tags_by_side else f"write {{{code}: null}} to add pieces alone, or "
            raise ValueError(
                f"{setting}: the vocabulary of {run} has a tag for {code} already; {alone}leave {code} out"
            )
        if relative is not None and relative not in loaded.tags:
            raise ValueError(
                f"{setting}: the vocabulary of {run} has no tag for {relative}{suggestion(relative, loaded.tags)}"
            )
    if loaded.tags_by_side:
        _check_tokens(config.extend or {}, loaded)


def _check_imported(config: VocabConfig, vocabulary: Artifact) -> None:
    """Raise ValueError if an imported vocabulary cannot have pieces of more languages, or is to lose some."""
    from pipeline.vocab.pieces import Pieces
    from pipeline.vocab.vocabulary import ORIGINAL

    imported = f"the vocabulary of {config.from_run} was imported (docs/import.md)"
    if config.trim:
        raise ValueError(
            f"vocab.trim=true: {imported}, and the tokenizer of its exports cannot lose pieces; leave vocab.trim out. "
            "A smaller model with a vocabulary of its own comes from make distill, which takes a fine-tuned run"
        )
    if config.extend_size:
        try:
            Pieces.read(vocabulary.path / "shared.model", imported=True).check_growth()
        except ValueError as error:
            raise ValueError(
                f"vocab.extend_size={config.extend_size}: {imported}, and {error}; choose vocab.extend_size=0, which "
                "adds tags alone"
            ) from error
        fast = vocabulary.path / ORIGINAL / "tokenizer.json"
        kind = json.loads(fast.read_text(encoding="utf-8")).get("model", {}).get("type") if fast.is_file() else "BPE"
        if kind != "BPE":
            raise ValueError(
                f"vocab.extend_size={config.extend_size}: {imported}, and its tokenizer.json is of the type {kind}, to "
                "which an export could not add pieces; choose vocab.extend_size=0, which adds tags alone, or import "
                "the checkpoint again without tokenizer.json"
            )


def _check_tokens(relatives: Mapping[str, str | None], vocabulary: "Vocabulary") -> None:
    """Raise ValueError if an imported vocabulary cannot have tags of more languages, or two would have one token."""
    from pipeline.vocab.imported_tags import has_m2m100_form, tag_token

    owners = {vocabulary.source_model.id_to_piece(index): code for code, index in vocabulary.tags.items()}
    tokens = [*owners]
    for code in relatives:
        try:
            token = tag_token(code, tokens)
        except ValueError as error:
            raise ValueError(f"vocab.extend.{code}: {error}; write a BCP-47 code, such as cv") from error
        if token in owners:
            raise ValueError(
                f"vocab.extend.{code}: its tag would be {token}, which is that of {owners[token]}; leave {code} out, "
                f"and name the pairs with {owners[token]}"
            )
        owners[token] = code
    if relatives and has_m2m100_form(tokens):
        logger.warning(
            "warning: vocab.extend (%s): the run cannot be exported, because the tokenizer of M2M100 in transformers "
            "has a fixed list of languages",
            ", ".join(relatives),
        )


def check_tags(config: VocabConfig, vocabulary: Artifact, corpus: Corpus) -> None:
    """Raise ValueError if a target language or a source of the corpus has no tag, or no pair has a new language.

    vocabulary: that of `vocab.from_run`.
    """
    from pipeline.vocab.vocabulary import Vocabulary

    run, loaded, extend = config.from_run, Vocabulary.load(vocabulary.path), config.extend or {}
    for code in extend:
        if not any(code in (pair.src, pair.tgt) for pair in corpus.pairs):
            codes = ", ".join(sorted({code for pair in corpus.pairs for code in (pair.src, pair.tgt)}))
            raise ValueError(
                f"vocab.extend.{code}: no pair of the run has this language; they have {codes}; leave {code} out, or "
                "add a pair with it"
            )
    new = {code for code, relative in extend.items() if relative or loaded.tags_by_side}
    remedy = "leave vocab.from_run out, so that a vocabulary is trained on all of this text"
    for pair in corpus.pairs:
        if pair.tgt not in loaded.tags and pair.tgt not in new:
            change = f"vocab.extend={{{pair.tgt}: {next(iter(loaded.tags))}}}"
            added = f"add one that starts from another language's, as {change}, "
            raise ValueError(
                f"vocab.from_run={run}: its vocabulary has no tag for {pair.tgt}, the target of {pair}, but for "
                f"{', '.join(loaded.tags)}; choose pairs into these, {added}or {remedy}"
            )
        if loaded.tags_by_side and pair.src not in loaded.tags and pair.src not in new:
            raise ValueError(
                f"vocab.from_run={run}: its vocabulary has no tag for {pair.src}, the source of {pair}, with which "
                f"sources begin there; it has {', '.join(loaded.tags)}; add one, as "
                f"vocab.extend={{{pair.src}: {next(iter(loaded.tags))}}}"
            )
        tags = {table.tag for table, _ in corpus.tables_of(pair, "train")} - {"", *loaded.source_tags}
        if tags:
            raise ValueError(
                f"vocab.from_run={run}: its vocabulary has no tag for {', '.join(sorted(tags))}, which marks a source "
                f"of {pair}, but for {', '.join(loaded.source_tags) or 'none'}; leave that source out, or {remedy}"
            )


def warn_of_bytes(run: str, vocabulary: Artifact, cleaned: Mapping[LangPair, Artifact]) -> None:
    """Warn of pairs whose text has many characters that the vocabulary of a run can only spell byte by byte."""
    from pipeline.vocab.sample import Sample, sample_rows
    from pipeline.vocab.vocabulary import Vocabulary

    loaded, rows = Vocabulary.load(vocabulary.path), train_rows(cleaned)
    for pair, artifact in cleaned.items():
        sampled = sample_rows(rows[pair], min(rows[pair], SAMPLE_ROWS), pair, seed=1)
        sample = Sample({pair: artifact.path}, {pair: sampled})
        sides = (("source", "src", loaded.source_model), ("target", "tgt", loaded.target_model))
        for side, column, model in sides:
            share = _share_of_bytes(model, list(sample.texts([column])))
            if share > MOST_BYTES:
                logger.warning(
                    "warning: vocab.from_run=%s: %.0f %% of the %s pieces of %s are single bytes or unknown, because "
                    "the vocabulary lacks their characters; sentences are longer, and learned worse, than with pieces "
                    "for them (vocab.extend) or a vocabulary of this text (without vocab.from_run)",
                    *(run, 100 * share, side, pair),
                )


def check_vocabulary_of(checkpoint: Path, vocabulary: Artifact) -> None:
    """Raise ValueError if the weights of a checkpoint belong to another vocabulary."""
    from pipeline.vocab.vocabulary import vocabulary_sha256

    sha256 = vocabulary_sha256(vocabulary.path)
    if retention.state(checkpoint).get("vocabulary", sha256) != sha256:
        raise ValueError(
            f"train.initialize_from: {checkpoint} was trained with another vocabulary; use that one, by "
            "vocab.from_run and the name of the run that has this model"
        )


def trained_config(model: Artifact) -> ModelConfig:
    """Return the configuration of a trained model."""
    return build(ModelConfig, retention.state(retention.resolve(model.path))["model"])


def check_models(decode: DecodeConfig, models: Sequence[Artifact], run: str, own: Artifact | None) -> None:
    """Raise ValueError if a model of `decode.ensemble` would count twice, or cannot translate with these settings.

    models: those of the runs that `decode.ensemble` names, in its order.
    run, own: the run that they translate with, and its model; None if it is not trained yet.
    """
    names = {} if own is None else {own.content: run}
    for name, model in zip(decode.ensemble, models, strict=True):
        if model.content in names:
            raise ValueError(
                f"decode.ensemble={list(decode.ensemble)}: {name} has the same model as {names[model.content]}, which "
                f"would count twice; leave {name} out"
            )
        names[model.content] = name
        try:
            choose(model.path / "checkpoints", decode)
            trained_config(model).moe.check_evaluation_capacity(decode.capacity_factor)
        except ValueError as error:
            raise ValueError(f"decode.ensemble={name}: with that model, {error}") from error


def check_members(
    members: Sequence[EarlierRun], run: str, pairs: Sequence[LangPair], model: ModelConfig, decode: DecodeConfig
) -> None:
    """Raise ValueError if a run of `decode.ensemble` lacks pairs, or if its weights are to be averaged and cannot be.

    run, pairs, model: of the run that they translate with.
    """
    for member in members:
        if missing := [pair.name for pair in pairs if pair not in member.pairs]:
            raise ValueError(
                f"decode.ensemble={member.run}: it was not trained on {', '.join(missing)}; name runs of all pairs of "
                f"{run}"
            )
        if decode.combine == "weights":
            check_mean(model, trained_config(member.model), run, member.run)


def check_other_model(member: EarlierRun, model: Artifact) -> None:
    """Raise ValueError if a run of `decode.ensemble` has the very model that it is to translate with."""
    if member.model.content == model.content:
        raise ValueError(
            f"decode.ensemble={member.run}: equal settings made its model the same as this run's, which would count "
            "twice; leave it out, or change a setting of the training, such as train.seed"
        )


def check_member_vocabulary(member: EarlierRun, run: str, vocabulary: Artifact) -> None:
    """Raise ValueError if a run of `decode.ensemble` has another vocabulary than the run that it translates with."""
    from pipeline.vocab.vocabulary import vocabulary_sha256

    if vocabulary_sha256(member.vocabulary.path) != vocabulary_sha256(vocabulary.path):
        raise ValueError(
            f"decode.ensemble={member.run}: its vocabulary is {member.vocabulary.path}, and that of {run} is "
            f"{vocabulary.path}; models translate together only with equal vocabularies: train one of the runs with "
            "vocab.from_run and the name of the other"
        )


def _share_of_bytes(model: Any, texts: Sequence[str]) -> float:
    """Return the share of the pieces of texts that are single bytes or unknown."""
    spelled = {index for index in range(model.get_piece_size()) if model.is_byte(index)} | {UNK}
    pieces = [piece for ids in model.encode(list(texts)) for piece in ids]
    return sum(piece in spelled for piece in pieces) / max(len(pieces), 1)
