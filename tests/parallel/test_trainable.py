"""Training of some components of a model, or of adapters alone: the other weights are frozen, under any layout."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from pipeline.model.components import MARK
from pipeline.model.config import MoEConfig
from pipeline.model.lora import LoraConfig
from pipeline.train.retention import resolve
from pipeline.train.upcycling import check_fit, initialize_from
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.conftest import EVERY, assert_same_bits, initial_model, make_job, run_worker

LORA = LoraConfig(rank=2, dropout=0.1)


def test_frozen_weights_keep_their_bits_and_the_others_train_as_in_plain_torch(tmp_path):
    """Two processes share data, experts or a model. They resume bit for bit, and decoding reads merged weights.

    Some cases train all weights: of a model with biases, or at a rate for each component.
    """
    output = run_worker("trainable_worker.py", tmp_path, str(tmp_path))
    assert output.count("Case(") == 15
    assert output.endswith("done\n")


def test_adapters_of_a_run_resume_and_the_next_run_starts_from_merged_weights(prepared, run_job, dense, tmp_path):
    settings = {"moe": MoEConfig(), "initialize_from": str(dense.directory), "lora": LORA, "checkpoints": EVERY}
    straight = run_job(processes=1, ep=1, max_steps=3, **settings)
    resumed = run_job(processes=1, ep=1, max_steps=3, into=straight.until(1, tmp_path), **settings)
    assert_same_bits(resumed, straight)
    base, adapted = dense.tensors(), straight.tensors()
    weights = [name for name in base if name.startswith("model.")]
    assert all(torch.equal(adapted[name], base[name]) for name in weights)
    assert {name.partition(".")[2] for name in adapted if name.startswith("exp_avg.")} == {
        name.removeprefix("model.") for name in adapted if MARK in name and name.startswith("model.")
    }
    assert json.loads((straight.checkpoint() / "state.json").read_text())["lora"] == asdict(LORA)

    job, vocabulary = make_job(prepared, Path("-"), processes=1, ep=1, moe=MoEConfig()), Path(prepared.vocabulary)
    model = initial_model(job)
    initialize_from(straight.directory, model, Vocabulary.load(vocabulary).sha256)
    name = "model.decoder.layers.1.cross_attention"
    a, b = (adapted[f"{name}{MARK}wo_NDM.{matrix}"].double() for matrix in ("a_NDR", "b_RM"))
    expected = base[f"{name}.wo_NDM"].double() + 8 * torch.einsum("ndr,rm->ndm", a, b)
    actual = model.decoder.layers[1].cross_attention.wo_NDM
    torch.testing.assert_close(actual.detach(), expected.float(), rtol=1e-6, atol=1e-7)
    assert not torch.equal(actual, base[f"{name}.wo_NDM"])


def test_routers_that_a_dense_model_lacks_must_train(prepared, dense):
    """They would stay random. A model that trains whole may start from it."""
    job = make_job(prepared, Path("-"), processes=1, ep=1, moe=MoEConfig(num_experts=4, expert_dim=64))
    shared = Vocabulary.load(Path(prepared.vocabulary)).shared
    checkpoint = resolve(dense.directory)
    check_fit("dense", checkpoint, job.model, shared=shared)
    check_fit("dense", checkpoint, job.model, shared=shared, trainable=["norms", "routers"])
    for trainable in (["norms"], "adapters"):
        with pytest.raises(ValueError, match=r"dense does not have encoder.*router.wg_EM, which would keep its random"):
            check_fit("dense", checkpoint, job.model, shared=shared, trainable=trainable)
