"""transformers' M2M100 (dense) or NLLB-MoE in its Trainer: `python -m bench.train.peer_transformers job.json`.

Every item of the data set is a whole batch of sentences of similar length, so that a step has as many real tokens as
the steps of the other contenders. The Trainer does everything after the collator. There is no label smoothing, because
with the Trainer's, NLLB-MoE would lose its auxiliary loss.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    NllbMoeConfig,
    NllbMoeForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from bench.products import use_our_libraries
from bench.train.turns import Turns

PAD, EOS, IGNORED = 1, 2, -100


class Counted(Trainer):  # type: ignore[misc]
    """A Trainer that counts the real target tokens of all losses."""

    target_tokens = 0

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        self.target_tokens += int((inputs["labels"] != IGNORED).sum())
        return super().compute_loss(model, inputs, *args, **kwargs)


class TakeTurns(TrainerCallback):  # type: ignore[misc]
    """A callback that waits for its turn before each step."""

    turns: Turns

    def on_step_begin(self, *_args: Any, **_kwargs: Any) -> None:
        self.turns.step()


def collate(items: list[list[list[list[int]]]]) -> dict[str, Tensor]:
    """Pad one batch of (source, target) ids."""
    (batch,) = items
    sources = [torch.tensor(source) for source, _ in batch]
    targets = [torch.tensor(target) for _, target in batch]
    inputs = [torch.tensor([EOS, *target[:-1]]) for _, target in batch]
    tokens = pad_sequence(sources, batch_first=True, padding_value=PAD)
    return {
        "input_ids": tokens,
        "attention_mask": (tokens != PAD).long(),
        "decoder_input_ids": pad_sequence(inputs, batch_first=True, padding_value=PAD),
        "labels": pad_sequence(targets, batch_first=True, padding_value=IGNORED),
    }


def build_model(model: dict[str, Any], size: int) -> torch.nn.Module:
    """Return a model with our dimensions. It differs from ours by its biases."""
    experts = model["moe"]["num_experts"]
    common = {
        "vocab_size": size,
        "d_model": model["dim"],
        **{f"{side}_layers": model[f"{side}_layers"] for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": model["ffn_dim"] for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": model["heads"] for side in ("encoder", "decoder")},
        **{f"{side}_layerdrop": 0.0 for side in ("encoder", "decoder")},
        "dropout": model["dropout"],
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "max_position_embeddings": 256,
        "use_cache": bool(experts),  # NLLB-MoE in 4.57.1 needs it to find its router logits
    }
    if not experts:
        return M2M100ForConditionalGeneration(M2M100Config(**common))  # type: ignore[no-any-return]
    every = model["moe"]["every"]
    config = NllbMoeConfig(
        **common,
        num_experts=experts,
        expert_capacity=None,  # 2 S / E, as ours at capacity factor 1
        encoder_sparse_step=every,
        decoder_sparse_step=every,
        moe_token_dropout=0.0,
        output_router_logits=True,
    )
    return NllbMoeForConditionalGeneration(config)  # type: ignore[no-any-return]


def main() -> None:
    use_our_libraries()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.manual_seed(1)
    model = build_model(job["model"], job["sizes"][0])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if world == 1:  # the Trainer would make a process group of one
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            del os.environ[name]
    parameters = sum(p.numel() for p in model.parameters())
    callback = TakeTurns()
    arguments = TrainingArguments(
        output_dir=str(Path(job["directory"]) / "out"),
        use_cpu=True,
        ddp_backend="gloo" if world > 1 else None,
        bf16=job["dtype"] == "bf16",
        per_device_train_batch_size=1,
        max_steps=10**6,
        learning_rate=1e-4,
        weight_decay=0.01,
        max_grad_norm=1.0,
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Counted(
        model=model, args=arguments, train_dataset=job["batches"], data_collator=collate, callbacks=[callback]
    )
    callback.turns = Turns(
        Path(job["directory"]),
        job["rounds"],
        rank=rank,
        sums=lambda: {"target_tokens": trainer.target_tokens},
        before=lambda: {"parameters": parameters},
    )
    trainer.train()


if __name__ == "__main__":
    main()
