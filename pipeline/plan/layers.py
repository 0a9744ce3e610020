"""The layers of a workload's model by kind, and the chunks in which it computes logits.

The rules are those of `pipeline.model`. They are written again here because importing the model loads torch.
Tests compare all that follows from them with what the real model does.
"""

from dataclasses import dataclass
from typing import Literal

from pipeline.model.config import ModelConfig, Recompute
from pipeline.plan.workload import Setup, Workload

Again = Literal["nothing", "attention", "everything"]

# Constants of `pipeline.model.loss` and `pipeline.model.moe.router_chunks`
LOGITS_CHUNK, LOGITS_TOKENS, ROUTER_CHUNK = 1 << 23, 1024, 1 << 20


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """A kind of layer. All layers of one kind cost the same.

    decoder: a decoder layer, which has cross-attention too.
    moe: its feed-forward part is a mixture of experts.
    recompute: the activations that backward computes again.
    """

    decoder: bool
    moe: bool
    recompute: Again


def layer_kinds(model: ModelConfig, recompute: Recompute, *, decoder: bool) -> list[LayerKind]:
    """Return the kind of every layer of the encoder or decoder, from the first to the last."""
    num_layers = model.decoder_layers if decoder else model.encoder_layers
    kinds = []
    for number in range(1, num_layers + 1):
        whole = recompute == "all" or (recompute == "layers" and number % 2 == 1)
        again: Again = "everything" if whole else "attention" if recompute == "selective" else "nothing"
        kinds.append(LayerKind(decoder=decoder, moe=model.is_moe(number), recompute=again))
    return kinds


def logit_chunks(workload: Workload, setup: Setup) -> list[int]:
    """Return the number of target tokens in each chunk whose logits are computed at once, as even as possible."""
    tokens = workload.target_tokens
    size = max(LOGITS_TOKENS, LOGITS_CHUNK // process_vocabulary(workload, setup))
    size = -(-tokens // -(-tokens // size))
    full, left = divmod(tokens, size)
    return [size] * full + [left] * (left > 0)


def process_vocabulary(workload: Workload, setup: Setup) -> int:
    """Return the part of the target vocabulary that one process has."""
    return workload.target_vocabulary // setup.layout.parts(setup.layout.table.get("V", ()))


def recomputes_logits(workload: Workload, setup: Setup) -> bool:
    """Return whether backward computes the logits of every chunk again."""
    return setup.recompute != "none" and len(logit_chunks(workload, setup)) > 1
