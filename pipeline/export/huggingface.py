"""M2M100 (dense) and NLLB-MoE for transformers, written without it."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from pipeline.decode.search.search import max_length
from pipeline.export.added_pieces import write_added_pieces
from pipeline.export.added_tokens import check_added_tags, write_added_tags
from pipeline.export.card import by_side_code
from pipeline.export.command import Export
from pipeline.export.exportable import check_huggingface, has_experts
from pipeline.export.model import load
from pipeline.export.settings import MODELLING, generation_settings, model_settings
from pipeline.export.tokenizer import TOKENIZATION, tokenizer_json, tokenizer_settings
from pipeline.export.weights import hidden_size, named_weights
from pipeline.model.config import ModelConfig
from pipeline.vocab.tokenizer import Vocabulary
from pipeline.vocab.vocabulary import ORIGINAL

logger = logging.getLogger(__name__)
BESIDE = Path(__file__).parent / "beside"


def write_huggingface(export: Export, out: Path) -> None:
    """Write the weights, settings, tokenizer, card, and the code for transformers."""
    model, vocabulary = load(export.run, export.decode, _check, export.taken_out)
    longest, config, hidden = export.run.max_source_tokens, model.config, hidden_size(model.config)
    positions = max(longest, max_length(longest, export.decode))
    settings = model_settings(config, vocabulary=vocabulary.source_size, hidden=hidden, positions=max(positions, 1024))
    _write(out / "config.json", settings)
    _write(out / "generation_config.json", generation_settings(export.decode, max_tokens=positions))
    _write_tokenizer(export, vocabulary, out, longest)
    save_file(named_weights(model), out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)  # the mode of the other files
    if has_experts(config):
        shutil.copyfile(BESIDE / f"{MODELLING}.py", out / f"{MODELLING}.py")
    note = _padding(config, hidden)
    if note:
        logger.info("%s", note)
    code = own_program(export, vocabulary, sparse=has_experts(config))
    text = export.card(model, library="transformers", note=note, code=code)
    (out / "README.md").write_text(text, encoding="utf-8")


def own_program(export: Export, vocabulary: Vocabulary, *, sparse: bool) -> list[str]:
    """Return a program that translates by the tokenizer of an imported model; empty if the tokenizer is ours."""
    if not vocabulary.tags_by_side:
        return []
    source = next(pair.src for pair in export.run.pairs if pair.tgt == export.target)
    own = vocabulary.source_model.id_to_piece(vocabulary.tag(source, "source")).strip("_")
    return by_side_code(own, vocabulary.tag(export.target), sparse=sparse)


def _write_tokenizer(export: Export, vocabulary: Vocabulary, out: Path, longest: int) -> None:
    """Write the tokenizer, or copy that of an imported model and add its new tags and pieces."""
    if vocabulary.tags_by_side:
        shutil.copytree(export.run.vocabulary.path / ORIGINAL, out, dirs_exist_ok=True)
        write_added_tags(vocabulary, out)
        write_added_pieces(vocabulary, out)
        return
    _write(out / "tokenizer.json", tokenizer_json(vocabulary, export.target))
    _write(out / "tokenizer_config.json", tokenizer_settings(vocabulary, export.target, longest=longest))
    shutil.copyfile(BESIDE / f"{TOKENIZATION}.py", out / f"{TOKENIZATION}.py")


def _check(config: ModelConfig, vocabulary: Vocabulary) -> None:
    check_huggingface(config, shared=vocabulary.shared)
    check_added_tags(vocabulary)


def _padding(config: ModelConfig, hidden: int) -> str:
    if not has_experts(config) or config.ffn_dim == config.moe.expert_dim:
        return ""
    which = "experts" if config.moe.expert_dim < hidden else "dense networks"
    return (
        f"NLLB-MoE has one hidden size, so the {which} are {hidden} wide here and "
        f"{min(config.ffn_dim, config.moe.expert_dim)} in training: the rest is zeros, which is exact."
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
