"""The counts of one micro-batch, forward and backward, of GShard's MoE(16E, 12L).

The model and the micro-batch are those of `bench.train` on a GPU. Nothing computes: tensors have shapes alone, so any
machine can do it. A gate without a capacity needs numbers, which do not exist then, so its counts cannot be had.
"""

from dataclasses import replace

import numpy as np
import torch

from bench.train.contenders import CUDA as SCALE
from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.model.projection import keep_copies
from pipeline.model.transformer import Transformer
from tests.cuda.counting import Counts
from tests.cuda.impostor import CUDA, Impostor
from tests.cuda.training import AUTOCAST
from tests.gates import moe_of

VOCABULARY = dict(setting.split("=") for setting in SCALE.vocabulary)


class FullRows:
    """Sentences as long as a row."""

    def source(self, index):
        return np.full(SCALE.source, 4)

    def target(self, index):
        return np.full(SCALE.target, 4)


def count(gate="top2", precision="bf16", activation="relu", norm="layer"):
    """Return the counts of forward and backward, with the gradients' places."""
    (model_config,) = SCALE.models
    moe = moe_of(gate, num_experts=SCALE.experts, expert_dim=model_config.ffn_dim)
    rows = SCALE.rows[0]
    batch = assemble(
        [[(0, 0)]] * rows, GroupShape(rows=rows, source=SCALE.source, target=SCALE.target), [FullRows(), FullRows()]
    )
    with torch.device("meta"):
        model = Transformer(
            replace(model_config, moe=moe, activation=activation, norm=norm),
            source_vocabulary=int(VOCABULARY["vocab.source_size"]),
            target_vocabulary=int(VOCABULARY["vocab.target_size"]),
            shared=False,
            max_positions=max(SCALE.source, SCALE.target),
        )
    with Impostor(host="meta") as impostor, torch.autograd.set_detect_anomaly(True, check_nan=False):
        impostor.model(model)
        batch = batch.to(CUDA)
        keep_copies(model.parameters())  # as the engine does
        for _ in range(2):  # the second one has the copies that the first one of a step makes
            impostor.counts = Counts()
            model.zero_grad()
            with torch.autocast("cuda", dtype=AUTOCAST[precision], enabled=precision in AUTOCAST):
                losses = model.train()(batch, label_smoothing=0.1)
            losses.share(target_tokens=rows * SCALE.target, nonempty_groups=1).backward()
        return impostor.counts


def table(counts):
    """Return lines with a file each, and their sum."""
    files = counts.by_file()
    rows = [(file, *numbers) for file, numbers in sorted(files.items(), key=lambda item: -item[1][0])]
    rows.append(("all", *(sum(column) for column in zip(*files.values(), strict=True))))
    lines = [f"{'file of pipeline/':34}{'kernels':>9}{'casts':>7}{'GB moved':>10}"]
    return [*lines, *(f"{file:34}{kernels:9,}{casts:7,}{moved / 1e9:10.1f}" for file, kernels, casts, moved in rows)]


def waits(counts):
    """Return lines with a place each at which the host waits."""
    rows = [f"{place}: {reason}, {number} times" for (place, reason), number in sorted(counts.waits.items())]
    return [f"The host waits {sum(counts.waits.values())} times.", *rows]
