"""A dense model for CTranslate2, by its own specification of a Transformer."""

import math
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.export.command import Export
from pipeline.export.exportable import check_ctranslate2
from pipeline.export.model import load
from pipeline.model.attention import Attention
from pipeline.model.config import ModelConfig
from pipeline.model.feed_forward import FeedForward
from pipeline.model.norm import EPSILON, Norm
from pipeline.model.transformer import FIRST_POSITION, Layer, Stack, Transformer, sinusoids
from pipeline.vocab.symbols import BOS, EOS, UNK
from pipeline.vocab.tokenizer import Vocabulary

MAX_INPUT = 1024  # tokens at which CTranslate2 cuts a source by default; a longer one is an error


def write_ctranslate2(export: Export, out: Path) -> None:
    """Write the model directory, with the SentencePiece models and a card. Raises ValueError without the package."""
    try:
        import ctranslate2.specs
    except ImportError as error:
        raise ValueError(
            f"format=ctranslate2 needs the package ctranslate2: {error}; install it, as "
            "`.venv/bin/pip install 'ctranslate2==4.8.5'`"
        ) from error
    model, vocabulary = load(export.run, export.decode, _check, export.taken_out)
    config = model.config
    layers = config.encoder_layers, config.decoder_layers
    blocks = {"rms_norm": config.norm == "rms", "ffn_glu": config.activation == "swiglu"}
    if blocks["ffn_glu"]:
        blocks["activation"] = ctranslate2.specs.Activation.SWISH
    spec = ctranslate2.specs.TransformerSpec.from_config(layers, config.heads, pre_norm=True, **blocks)
    if blocks["rms_norm"]:
        spec.config.layer_norm_epsilon = EPSILON
    _fill(spec, model)
    _set_vocabularies(spec, vocabulary)
    spec.validate()
    spec.optimize()
    spec.save(str(out))
    names = ("shared", "shared") if vocabulary.shared else ("source", "target")
    for side, name in zip(("source", "target"), names, strict=True):
        shutil.copyfile(export.run.vocabulary.path / f"{name}.model", out / f"{side}.model")
    (out / "README.md").write_text(export.card(model, library="ctranslate2"), encoding="utf-8")


def _check(config: ModelConfig, vocabulary: Vocabulary) -> None:
    check_ctranslate2(config)
    if vocabulary.tags_by_side:
        raise ValueError(
            "format=ctranslate2 cannot hold an imported vocabulary, whose translations begin with a tag; "
            "choose format=huggingface"
        )


def _set_vocabularies(spec: Any, vocabulary: Vocabulary) -> None:
    """Both sides are named pieces; a source has the tag and `</s>` written out, as the card shows."""
    for model, register in (
        (vocabulary.source_model, spec.register_source_vocabulary),
        (vocabulary.target_model, spec.register_target_vocabulary),
    ):
        register([model.id_to_piece(index) for index in range(model.get_piece_size())])
    name = vocabulary.target_model.id_to_piece
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = name(BOS), name(EOS), name(UNK)
    spec.config.decoder_start_token = name(EOS)


def _fill(spec: Any, model: Transformer) -> None:
    encoder, decoder = spec.encoder, spec.decoder
    encoder.embeddings[0].weight = _array(model.source_embedding_VM)
    decoder.embeddings.weight = _array(model.target_embedding_VM)
    decoder.projection.weight = _array(model.target_embedding_VM)
    positions_TM = sinusoids(max(MAX_INPUT, len(model.positions)) + FIRST_POSITION, model.config.dim)
    for spec, stack in ((encoder, model.encoder), (decoder, model.decoder)):
        spec.scale_embeddings = math.sqrt(model.config.dim)
        spec.position_encodings.encodings = _array(positions_TM[FIRST_POSITION:])
        _set_norm(spec.layer_norm, stack.norm)
        _set_layers(spec.layer, stack)


def _set_layers(specs: Any, stack: Stack) -> None:
    for spec, layer in zip(specs, stack.layers, strict=True):
        assert isinstance(layer, Layer)
        assert isinstance(layer.feed_forward, FeedForward)
        _set_attention(spec.self_attention, layer.self_attention, layer.self_attention_norm, by_itself=True)
        if layer.cross_attention is not None and layer.cross_attention_norm is not None:
            _set_attention(spec.attention, layer.cross_attention, layer.cross_attention_norm, by_itself=False)
        spec.ffn.linear_0.weight = _array(layer.feed_forward.wi_MH.T)
        if layer.feed_forward.wu_MH is not None:
            spec.ffn.linear_0_noact.weight = _array(layer.feed_forward.wu_MH.T)
        spec.ffn.linear_1.weight = _array(layer.feed_forward.wo_HM.T)
        _set_norm(spec.ffn.layer_norm, layer.feed_forward_norm)


def _set_attention(spec: Any, attention: Attention, norm: Norm, *, by_itself: bool) -> None:
    """Projections of the same input are one matrix: all three of self-attention, keys and values of the other."""
    query, key, value = (w_MND.flatten(1).T for w_MND in (attention.wq_MND, attention.wk_MND, attention.wv_MND))
    inputs = [[query, key, value]] if by_itself else [[query], [key, value]]
    for linear, weights in zip(spec.linear, inputs, strict=False):
        linear.weight = _array(*weights)
    spec.linear[-1].weight = _array(attention.wo_NDM.flatten(0, 1).T)
    _set_norm(spec.layer_norm, norm)


def _set_norm(spec: Any, norm: Norm) -> None:
    spec.gamma = _array(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.bias)


def _array(*parts: Tensor) -> Any:
    """float32 in numpy, one below the other."""
    return torch.cat([part.detach() for part in parts]).contiguous().numpy()
