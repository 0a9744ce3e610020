"""eole's dense Transformer in eole's own training loop: `python -m bench.train.peer_eole job.json`.

eole's loader sorts by length and cuts batches of padded tokens, as for all users.
"""

import json
import sys
from pathlib import Path
from typing import Any

from eole.config.run import TrainConfig
from eole.train_single import main as train
from eole.trainer import Trainer

from bench.products import use_our_libraries
from bench.train.turns import Turns


def configuration(job: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that users of eole write in YAML."""
    folder, model = Path(job["directory"]), job["model"]
    return {
        "seed": 1,
        "share_vocab": True,
        "src_vocab": str(folder / "vocab.txt"),
        "src_vocab_size": job["sizes"][0],
        "tgt_vocab_size": job["sizes"][0],
        "vocab_size_multiple": 1,
        "overwrite": True,
        "report_every": 100,
        "data": {"corpus_1": {"path_src": str(folder / "train.src"), "path_tgt": str(folder / "train.tgt")}},
        "training": {
            "model_path": str(folder / "model"),
            "batch_type": "tokens",
            "batch_size": job["padded_tokens"],
            "batch_size_multiple": 1,
            "normalization": "tokens",
            "accum_count": [1],
            "bucket_size": job["sentences"],  # the default would read the sample 14 times before a step
            "num_workers": 0,
            "compute_dtype": job["dtype"],
            "optim": "adamw",
            "adam_beta2": 0.98,
            "weight_decay": 0.01,
            "learning_rate": 1e-4,
            "max_grad_norm": 1.0,
            "label_smoothing": 0.1,
            "dropout": [model["dropout"]],
            "attention_dropout": [0.0],
            "param_init_method": "xavier_uniform",
            "train_steps": 10**6,
            "valid_steps": 10**6,
            "save_checkpoint_steps": 10**6,
        },
        "model": {
            "architecture": "transformer",
            "encoder": {"layers": model["encoder_layers"]},
            "decoder": {"layers": model["decoder_layers"]},
            "hidden_size": model["dim"],
            "heads": model["heads"],
            "transformer_ff": model["ffn_dim"],
            "mlp_activation_fn": "relu",
            "share_decoder_embeddings": True,
            "share_embeddings": True,
            "embeddings": {"word_vec_size": model["dim"], "position_encoding_type": "SinusoidalInterleaved"},
        },
    }


def main() -> None:
    use_our_libraries()
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    turns: list[Turns] = []
    train_step = Trainer._train_step

    def take_turn(self: Any, batches: Any, normalization: Any, total_stats: Any, *args: Any, **kwargs: Any) -> Any:
        if not turns:
            turns.append(
                Turns(
                    Path(job["directory"]),
                    job["rounds"],
                    rank=0,
                    sums=lambda: {"target_tokens": total_stats.n_tokens},
                    before=lambda: {"parameters": sum(p.numel() for p in self.model.parameters())},
                )
            )
        turns[0].step()
        return train_step(self, batches, normalization, total_stats, *args, **kwargs)

    Trainer._train_step = take_turn
    train(TrainConfig(**configuration(job)), device_id=-1)


if __name__ == "__main__":
    main()
