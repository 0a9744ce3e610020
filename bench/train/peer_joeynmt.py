"""joeynmt's dense Transformer in joeynmt's own training loop: `python -m bench.train.peer_joeynmt job.json`.

joeynmt does not sort by length. Its text file has the sentences in batches of similar length, and joeynmt reads them in
this order, so it does better than for its users.
"""

import json
import sys
from pathlib import Path
from typing import Any

import joeynmt.training
from joeynmt.training import TrainManager

from bench.products import use_our_libraries
from bench.train.turns import Turns


def configuration(job: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that users of joeynmt write in YAML."""
    folder, model = Path(job["directory"]), job["model"]
    side = {"level": "word", "voc_file": str(folder / "vocab.txt"), "max_length": 400}
    stack = {
        "type": "transformer",
        "num_heads": model["heads"],
        "embeddings": {"embedding_dim": model["dim"], "scale": True, "dropout": model["dropout"]},
        "hidden_size": model["dim"],
        "ff_size": model["ffn_dim"],
        "dropout": model["dropout"],
        "layer_norm": "pre",
    }
    return {
        "name": "bench",
        "model_dir": str(folder / "model"),
        "use_cuda": False,
        "random_seed": 1,
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "tgt", **side},
        },
        "testing": {"beam_size": 1, "batch_size": 2},
        "training": {
            "optimizer": "adamw",
            "adam_betas": [0.9, 0.98],
            "scheduling": "warmupinversesquareroot",
            "learning_rate": 1e-4,
            "learning_rate_warmup": 1000,
            "learning_rate_min": 1e-9,
            "weight_decay": 0.01,
            "label_smoothing": 0.1,
            "normalization": "tokens",
            "clip_grad_norm": 1.0,
            "batch_type": "token",
            "batch_size": job["padded_tokens"],
            "shuffle": False,
            "epochs": 1000,
            "updates": 10**6,
            "validation_freq": 10**6,
            "logging_freq": 100,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**stack, "num_layers": model["encoder_layers"]},
            "decoder": {**stack, "num_layers": model["decoder_layers"]},
        },
    }


def main() -> None:
    use_our_libraries()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    directory = Path(job["directory"])
    (directory / "model").mkdir()
    turns: list[Turns] = []
    train_step = TrainManager._train_step

    def take_turn(self: Any, batch: Any) -> Any:
        if not turns:
            turns.append(
                Turns(
                    directory,
                    job["rounds"],
                    rank=0,
                    sums=lambda: {"target_tokens": self.stats.total_tokens},
                    before=lambda: {"parameters": sum(p.numel() for p in self.model.parameters())},
                )
            )
        turns[0].step()
        return train_step(self, batch)

    TrainManager._train_step = take_turn
    joeynmt.training.train(rank=0, world_size=None, cfg=configuration(job), skip_test=True)


if __name__ == "__main__":
    main()
