"""Small checkpoints as transformers writes them, without transformers, and imports of them."""

import json
from types import SimpleNamespace

import sentencepiece
import torch
from safetensors.torch import save_file

from pipeline.dag.store import Store
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.export.settings import model_settings
from pipeline.export.weights import hidden_size, named_weights
from pipeline.finished_run import FinishedRun
from pipeline.imports.command import import_checkpoint
from pipeline.imports.config import load_import
from pipeline.model.config import MoEConfig
from pipeline.vocab.tokenizer import Vocabulary
from tests.exports import config_of, random_model

TAGS = ["deu_Latn", "eng_Latn", "zho_Hans", "zho_Hant"]
PIECES, ROWS = 60, 68  # 60 pieces and <pad>, 4 tags, <mask>, 2 free rows
TEXT = ["the quick brown fox jumps over the lazy dog", "a window and a file", "open the window of the file"] * 20
CONFIGS = {
    "dense": config_of(biases=True),
    "moe": config_of(biases=True, moe=MoEConfig(num_experts=4, expert_dim=48, output_masking=0.2, output_scale=0.8)),
}


def train_tokenizer(prefix):
    """Return the bytes of a SentencePiece model as NLLB has it."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(prefix), vocab_size=PIECES, model_type="bpe", minloglevel=2
    )
    return prefix.with_suffix(".model").read_bytes()


def write_checkpoint(directory, config, tokenizer):
    """Write a checkpoint of random weights. tokenizer: bytes of a SentencePiece model."""
    model = random_model(config, SimpleNamespace(source_size=ROWS, target_size=ROWS, shared=True))
    directory.mkdir()
    settings = model_settings(config, vocabulary=ROWS, hidden=hidden_size(model.config), positions=64)
    (directory / "config.json").write_text(json.dumps(settings))
    (directory / "special_tokens_map.json").write_text(
        json.dumps({"additional_special_tokens": TAGS, "mask_token": {"content": "<mask>"}})
    )
    (directory / "sentencepiece.bpe.model").write_bytes(tokenizer)
    save_file(named_weights(model), directory / "model.safetensors")


def run_import(checkpoint, *words, pairs="de-en"):
    root = checkpoint.parent
    place = [f"runtime.runs={root}/runs", f"runtime.artifacts={root}/artifacts"]
    import_checkpoint(load_import([f"source={checkpoint}", "name=mine", f"pairs=[{pairs}]", *place, *words]))
    return FinishedRun.open("mine", runs=root / "runs", store=Store(root / "artifacts"))


def edited(checkpoint, name="config.json", **changes):
    path = checkpoint / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def loaded(run):
    vocabulary = Vocabulary.load(run.vocabulary.path)
    device = torch.device("cpu")
    return load_model(run.model.path / "checkpoints", vocabulary, config=DecodeConfig(), device=device), vocabulary
