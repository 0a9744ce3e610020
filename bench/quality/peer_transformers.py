"""A Marian model of transformers in its Trainer: `python -m bench.quality.peer_transformers job.json train|translate`.

Every item of the data set is a whole batch of sentences of similar length. The batches of each of several epochs are
cut anew. The Trainer does everything after the collator.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel, Trainer, TrainerCallback, TrainingArguments

from bench.quality.clock import Clock, mark_name
from bench.quality.peer import run_peer
from bench.train.peer_transformers import EOS, IGNORED, PAD, collate

BEAM = 5
SENTENCES = 32  # of a batch of the test set
NEVER = 10**9


class Counted(Trainer):  # type: ignore[misc]
    """A Trainer that counts the real target tokens of all losses."""

    target_tokens = 0

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        self.target_tokens += int((inputs["labels"] != IGNORED).sum())
        return super().compute_loss(model, inputs, *args, **kwargs)


class Timed(TrainerCallback):  # type: ignore[misc]
    """A callback that tells the clock of each step."""

    clock: Clock

    def on_step_begin(self, *_args: Any, **_kwargs: Any) -> None:
        self.clock.step()


def build_model(job: dict[str, Any]) -> Any:
    """Return a Marian model of our dimensions. It is post-norm, and has biases."""
    model = job["model"]
    config = MarianConfig(
        vocab_size=job["size"],
        decoder_vocab_size=job["size"],
        d_model=model["dim"],
        **{f"{side}_layers": model[f"{side}_layers"] for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": model["ffn_dim"] for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": model["heads"] for side in ("encoder", "decoder")},
        dropout=model["dropout"],
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        init_std=job["initial_deviation"] or 0.02,  # 0.02 is the default of transformers
        max_position_embeddings=512,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=None,
        decoder_start_token_id=EOS,
    )
    return MarianMTModel(config)


def train(job: dict[str, Any]) -> None:
    """Train to the last mark of the clock."""
    torch.manual_seed(1)
    model, settings = build_model(job), job["train"]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    callback = Timed()
    arguments = TrainingArguments(
        output_dir=str(Path(job["directory"]) / "out"),
        use_cpu=True,
        ddp_backend="gloo" if world > 1 else None,
        per_device_train_batch_size=1,
        max_steps=NEVER,
        learning_rate=settings["learning_rate"],
        lr_scheduler_type="inverse_sqrt",
        warmup_steps=settings["warmup_steps"],
        adam_beta1=settings["beta1"],
        adam_beta2=settings["beta2"],
        adam_epsilon=settings["epsilon"],
        weight_decay=settings["weight_decay"],
        max_grad_norm=settings["clip_norm"],
        label_smoothing_factor=settings["label_smoothing"],
        logging_steps=100,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    batches = json.loads((Path(job["text"]) / "batches.json").read_text(encoding="utf-8"))
    trainer = Counted(model=model, args=arguments, train_dataset=batches, data_collator=collate, callbacks=[callback])

    def save(path: Path) -> None:
        if rank == 0:
            model.save_pretrained(path)

    callback.clock = Clock(
        Path(job["directory"]),
        job["minutes"],
        rank=rank,
        save=save,
        tokens=lambda: trainer.target_tokens,
        parameters=sum(p.numel() for p in model.parameters()),
    )
    trainer.train()


def translate(job: dict[str, Any]) -> None:
    """Translate the test set by the weights of each mark, with the beam search of `generate`."""
    lines = (Path(job["text"]) / "test.src").read_text(encoding="utf-8").splitlines()
    sources = [[*(int(word[1:]) for word in line.split()), EOS] for line in lines]
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    for minutes in job["minutes"]:
        path = Path(job["directory"]) / mark_name(minutes)
        model = MarianMTModel.from_pretrained(path).eval()
        words = [""] * len(sources)
        for start in range(0, len(order), SENTENCES):
            rows = order[start : start + SENTENCES]
            batch = collate([[[sources[row], [EOS]] for row in rows]])
            with torch.inference_mode():
                translated = model.generate(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    num_beams=BEAM,
                    max_new_tokens=job["max_length"],
                )
            for row, ids in zip(rows, translated.tolist(), strict=True):
                words[row] = " ".join(f"t{index}" for index in ids if index not in (EOS, PAD))
        path.with_name(f"{path.name}.words").write_text("".join(f"{line}\n" for line in words), encoding="utf-8")


if __name__ == "__main__":
    if os.environ["WORLD_SIZE"] == "1":  # the Trainer would make a process group of one
        del os.environ["LOCAL_RANK"]
    run_peer({"train": train, "translate": translate})
