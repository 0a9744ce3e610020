"""joeynmt's Transformer in its own training loop: `python -m bench.quality.peer_joeynmt job.json train|translate`.

Its text file has batches of similar length, cut anew for each of several epochs, which joeynmt reads as they come. By
itself it does not sort by length.
"""

from pathlib import Path
from typing import Any

import joeynmt.builders
import joeynmt.training
import torch
from joeynmt.prediction import test
from joeynmt.training import TrainManager
from torch.optim.lr_scheduler import ReduceLROnPlateau

from bench.quality.clock import Clock, mark_name
from bench.quality.peer import run_peer
from bench.quality.systems import OWN

BEAM = 5


def configuration(job: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration that users of joeynmt write in YAML."""
    folder, text = Path(job["directory"]), Path(job["text"])
    side = {"level": "word", "voc_file": str(text / "vocab.txt"), "max_length": 400}
    training, model = (own if job["configuration"] == OWN else ours)(job)
    return {
        "name": "bench",
        "model_dir": str(folder / "model"),
        "use_cuda": False,
        "random_seed": 1,
        "data": {
            "train": str(text / "train"),
            "dev": str(text / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "tgt", **side},
        },
        "testing": {
            "beam_size": BEAM,
            "beam_alpha": 1.0,
            "batch_size": 1024,
            "batch_type": "token",
            "max_output_length": job["max_length"],
            "eval_metrics": ["bleu"],
        },
        "training": {
            "normalization": "tokens",
            "optimizer": "adamw",
            "batch_type": "token",
            "shuffle": False,
            "label_smoothing": 0.1,
            "loss": "crossentropy",
            "epochs": 10**6,
            "updates": 10**9,
            "logging_freq": 100,
            "print_valid_sents": [],
            "keep_best_ckpts": 1,
            **training,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "bias_initializer": "zeros",
            "tied_embeddings": True,
            "tied_softmax": True,
            **model,
        },
    }


def own(_job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the training and the model of joeynmt's configs/iwslt14_deen_bpe.yaml."""
    stack = {
        "type": "transformer",
        "num_layers": 6,
        "num_heads": 4,
        "embeddings": {"embedding_dim": 256, "scale": True, "dropout": 0.0},
        "hidden_size": 256,
        "ff_size": 1024,
        "dropout": 0.3,
        "layer_norm": "pre",
        "activation": "relu",
    }
    training = {
        "adam_betas": [0.9, 0.999],
        "scheduling": "plateau",
        "patience": 5,
        "decrease_factor": 0.7,
        "learning_rate": 0.0003,
        "learning_rate_min": 1e-8,
        "weight_decay": 0.0,
        "batch_size": 4096,
        "early_stopping_metric": "bleu",
        "validation_freq": 1000,
    }
    return training, {"encoder": stack, "decoder": stack}


def ours(job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return our recipe, without the average of weights, which joeynmt does not have."""
    model, train = job["model"], job["train"]
    stack = {
        "type": "transformer",
        "num_heads": model["heads"],
        "embeddings": {"embedding_dim": model["dim"], "scale": True, "dropout": model["dropout"]},
        "hidden_size": model["dim"],
        "ff_size": model["ffn_dim"],
        "dropout": model["dropout"],
        "layer_norm": "pre",
        "activation": "relu",
    }
    training = {
        "adam_betas": [train["beta1"], train["beta2"]],
        "scheduling": "warmupinversesquareroot",
        "learning_rate": train["learning_rate"],
        "learning_rate_warmup": train["warmup_steps"],
        "learning_rate_min": 1e-9,
        "weight_decay": train["weight_decay"],
        "label_smoothing": train["label_smoothing"],
        "clip_grad_norm": train["clip_norm"],
        "batch_size": job["padded_tokens"],
        "validation_freq": 10**9,
    }
    encoder, decoder = ({**stack, "num_layers": model[f"{side}_layers"]} for side in ("encoder", "decoder"))
    deviation = job["initial_deviation"]
    embeddings = {"embed_initializer": "normal", "embed_init_weight": deviation} if deviation else {}
    return training, {**embeddings, "encoder": encoder, "decoder": decoder}


def train(job: dict[str, Any]) -> None:
    """Train to the last mark of the clock."""
    directory = Path(job["directory"])
    (directory / "model").mkdir(exist_ok=True)
    clocks: list[Clock] = []
    train_step, validate = TrainManager._train_step, TrainManager._validate

    def timed_step(self: Any, batch: Any) -> Any:
        if not clocks:
            clocks.append(
                Clock(
                    directory,
                    job["minutes"],
                    rank=0,
                    save=lambda path: torch.save({"model_state": self.model.state_dict()}, path),
                    tokens=lambda: self.stats.total_tokens,
                    parameters=sum(p.numel() for p in self.model.parameters()),
                )
            )
        clocks[0].step()
        return train_step(self, batch)

    def untimed_validation(self: Any, data: Any) -> None:
        with clocks[0].paused():
            validate(self, data)

    joeynmt.builders.ReduceLROnPlateau = plateau
    TrainManager._train_step = timed_step
    TrainManager._validate = untimed_validation
    joeynmt.training.train(rank=0, world_size=None, cfg=configuration(job), skip_test=True)


def plateau(*, verbose: bool, **settings: Any) -> Any:
    """Return torch's scheduler of joeynmt's `plateau`, without an option that newer versions of torch do not have."""
    return ReduceLROnPlateau(**settings)


def translate(job: dict[str, Any]) -> None:
    """Translate the test set by the weights of each mark, with joeynmt's beam search."""
    config = configuration(job)
    for minutes in job["minutes"]:
        path = Path(job["directory"]) / mark_name(minutes)
        config["testing"]["load_model"] = str(path)
        config["data"] |= {"train": None, "dev": None, "test": str(Path(job["text"]) / "test")}
        test(config, output_path=str(path))
        path.with_name(f"{path.name}.test").rename(path.with_name(f"{path.name}.words"))


if __name__ == "__main__":
    run_peer({"train": train, "translate": translate})
