"""COMET scores by the package unbabel-comet, which only this module imports, with a checkpoint on this machine."""

import hashlib
import logging
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

NAME = "comet"
_REMEDY = "it wants older packages than training does, so make an environment of its own, as docs/scoring.md says"


class Comet:
    """A loaded COMET model. signature: the model's name and hash, and the package's version."""

    def __init__(self, checkpoint: Path) -> None:
        """Load a checkpoint. Nothing is downloaded.

        checkpoint: `…/checkpoints/model.ckpt`, with hparams.yaml in the directory above, as COMET publishes them.
        Raises ValueError if the package, one of the files or the encoder that they name is missing.
        """
        settings = checkpoint.parent.parent / "hparams.yaml"
        for path in (checkpoint, settings):
            if not path.is_file():
                raise ValueError(
                    f"{path} does not exist; the model of COMET is a checkpoints/model.ckpt with hparams.yaml above it"
                )
        try:
            from comet import load_from_checkpoint  # type: ignore[import-not-found]
        except ModuleNotFoundError as error:
            raise ValueError(f"metric={NAME!r} needs unbabel-comet, but {error}; {_REMEDY}") from error
        for name in ("pytorch_lightning", "lightning.pytorch"):
            logging.getLogger(name).setLevel(logging.ERROR)  # it gives hints on devices and workers
        try:
            self._model = load_from_checkpoint(str(checkpoint), local_files_only=True)
        except Exception as error:  # torch, Lightning and transformers raise many kinds
            raise ValueError(
                f"the model of COMET {checkpoint} does not load ({type(error).__name__}: {error}); it needs, in the "
                f"cache of Hugging Face, configuration and tokenizer of the encoder that {settings} names"
            ) from error
        with checkpoint.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        name = checkpoint.resolve().parent.parent.name
        self.signature = f"nrefs:1|model:{name}|sha256:{digest[:12]}|version:{metadata.version('unbabel-comet')}"

    def scores(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
        """Return a score for each sentence, on the model's own scale. Uses a GPU if the machine has one."""
        samples = [
            {"src": source, "mt": hypothesis, "ref": reference}
            for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
        ]
        from torch.cuda import device_count

        predicted = self._model.predict(samples, batch_size=16, gpus=min(device_count(), 1), progress_bar=False)
        return [float(score) for score in predicted.scores]
