"""eole's Transformer in eole's own training loop: `python -m bench.quality.peer_eole job.json train|translate`.

eole's loader sorts by length and cuts batches of padded tokens, as for all users.
"""

import shutil
from pathlib import Path
from typing import Any

from eole.config.run import PredictConfig, TrainConfig
from eole.inference_engine import InferenceEnginePY
from eole.train_single import main as train_single
from eole.trainer import Trainer

from bench.quality.clock import Clock, mark_name
from bench.quality.peer import run_peer
from bench.quality.systems import OWN

BEAM = 5
NEVER = 10**9


def configuration(job: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that users of eole write in YAML."""
    text = Path(job["text"])
    training, model = (own if job["configuration"] == OWN else ours)(job)
    return {
        "seed": 1,
        "share_vocab": True,
        "src_vocab": str(text / "vocab.txt"),
        "src_vocab_size": job["size"],
        "tgt_vocab_size": job["size"],
        "vocab_size_multiple": 1,
        "overwrite": True,
        "report_every": 100,
        "data": {"corpus_1": {"path_src": str(text / "train.src"), "path_tgt": str(text / "train.tgt")}},
        "training": {
            "model_path": str(Path(job["directory"]) / "model"),
            "batch_type": "tokens",
            "batch_size_multiple": 1,
            "normalization": "tokens",
            "accum_count": [1],
            "bucket_size": job["sentences"],  # a whole epoch is sorted by length
            "num_workers": 0,
            "compute_dtype": "fp32",
            "label_smoothing": 0.1,
            "param_init_method": "xavier_uniform",
            "train_steps": NEVER,
            "valid_steps": NEVER,
            "save_checkpoint_steps": NEVER,
            **training,
        },
        "model": {
            "architecture": "transformer",
            "share_decoder_embeddings": True,
            "share_embeddings": True,
            **model,
        },
    }


def own(_job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the default Transformer of eole's quick start, trained by the optimiser of its recipes/wmt17.

    The quick start's own optimiser is SGD at a rate of 1. Batches are those of recipes/wmt17, which adds up ten
    of them for a step.
    """
    training = {
        "batch_size": 5000,
        "optim": "adamw",
        "learning_rate": 2,
        "warmup_steps": 4000,
        "decay_method": "noam",
        "adam_beta2": 0.998,
        "max_grad_norm": 0,
    }
    model = {"hidden_size": 512, "layers": 2, "heads": 8, "transformer_ff": 2048}  # its defaults; `noam` needs the size
    return training, {**model, "embeddings": {"position_encoding_type": "SinusoidalInterleaved"}}


def ours(job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our recipe, with its average of weights. `rsqrt` has no warm-up, so `noam` has our rate at its peak."""
    model, train, deviation = job["model"], job["train"], job["initial_deviation"]
    training = {
        **({"param_init_method": "normal", "param_init": deviation} if deviation else {}),
        "batch_size": job["padded_tokens"],
        "optim": "adamw",
        "adam_beta1": train["beta1"],
        "adam_beta2": train["beta2"],
        "weight_decay": train["weight_decay"],
        "learning_rate": train["learning_rate"] * (model["dim"] * train["warmup_steps"]) ** 0.5,
        "warmup_steps": train["warmup_steps"],
        "decay_method": "noam",
        "max_grad_norm": train["clip_norm"],
        "label_smoothing": train["label_smoothing"],
        "average_decay": 1 - train["ema"] if train["ema"] else 0,
        "average_every": 1,
        "dropout": [model["dropout"]],
        "attention_dropout": [0.0],
    }
    return training, {
        "encoder": {"layers": model["encoder_layers"]},
        "decoder": {"layers": model["decoder_layers"]},
        "hidden_size": model["dim"],
        "heads": model["heads"],
        "transformer_ff": model["ffn_dim"],
        "mlp_activation_fn": "relu",
        "embeddings": {"word_vec_size": model["dim"], "position_encoding_type": "SinusoidalInterleaved"},
    }


def train(job: dict[str, Any]) -> None:
    """Train to the last mark of the clock."""
    clocks: list[Clock] = []
    train_step = Trainer._train_step

    def timed_step(self: Any, batches: Any, normalization: Any, total_stats: Any, *args: Any, **kwargs: Any) -> Any:
        def save(path: Path) -> None:
            self.model_saver.save(self.optim.training_step, moving_average=self.moving_average)
            shutil.copytree(Path(self.model_saver.model_path) / self.model_saver.step_dir, path)

        if not clocks:
            clocks.append(
                Clock(
                    Path(job["directory"]),
                    job["minutes"],
                    rank=0,
                    save=save,
                    tokens=lambda: total_stats.n_tokens,
                    parameters=sum(p.numel() for p in self.model.parameters()),
                )
            )
        clocks[0].step()
        return train_step(self, batches, normalization, total_stats, *args, **kwargs)

    Trainer._train_step = timed_step
    train_single(TrainConfig(**configuration(job)), device_id=-1)


def translate(job: dict[str, Any]) -> None:
    """Translate the test set by the weights of each mark, with eole's beam search."""
    for minutes in job["minutes"]:
        path = Path(job["directory"]) / mark_name(minutes)
        config = PredictConfig(
            model_path=str(path),
            src=str(Path(job["text"]) / "test.src"),
            output=str(path.with_name(f"{path.name}.words")),
            beam_size=BEAM,
            batch_size=1024,
            batch_type="tokens",
            compute_dtype="fp32",
            max_length=job["max_length"],
        )
        engine = InferenceEnginePY(config)
        engine.infer_file()
        engine.terminate()


if __name__ == "__main__":
    run_peer({"train": train, "translate": translate})
