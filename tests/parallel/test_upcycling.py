"""A Mixture-of-Experts starts from a dense model (sparse upcycling, arXiv:2212.05055)."""

from pathlib import Path

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.jobs.launch import JobFailed
from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.config import DroplessConfig, Top2Config
from pipeline.train.upcycling import initialize_from
from pipeline.train.validation import validation_steps
from pipeline.vocab.encoded import EncodedSplit
from pipeline.vocab.tokenizer import vocabulary_sha256
from tests.parallel.conftest import initial_model, make_job


def build_model(prepared, moe):
    job = make_job(prepared, Path("-"), processes=1, ep=1, moe=moe)
    return job, initial_model(job)


@torch.no_grad()
def validation_loss(prepared, job, model):
    dev = [EncodedSplit.open(Path(directory), "dev") for directory in prepared.encoded]
    step = validation_steps(dev, job.batch)[0]
    return model.eval()(assemble(step.groups[0], step.shape, dev), label_smoothing=0.0).nll_BT


@pytest.mark.parametrize("gate", [Top2Config(), DroplessConfig(k=2)])
def test_the_mixture_computes_what_the_dense_model_does(prepared, dense, gate):
    """Experts are equal and the weights of two choices sum to 1, so only float32 rounding differs."""
    job, plain = build_model(prepared, MoEConfig())
    vocabulary = vocabulary_sha256(Path(prepared.vocabulary))
    initialize_from(dense.directory, plain, vocabulary)
    _, mixture = build_model(prepared, MoEConfig(num_experts=4, expert_dim=64, gate=gate))
    fresh = {name: p.clone() for name, p in mixture.named_parameters()}
    initialize_from(dense.directory, mixture, vocabulary)
    expected = validation_loss(prepared, job, plain)
    torch.testing.assert_close(validation_loss(prepared, job, mixture), expected, rtol=1e-5, atol=1e-5)
    for name, parameter in mixture.named_parameters():
        assert torch.equal(parameter, fresh[name]) == (".router." in name), name


def test_training_starts_from_the_dense_model_and_resumes_without_it(run_job, dense, tmp_path):
    moe = MoEConfig(num_experts=4, expert_dim=64)
    path = dense.directory.rename(tmp_path / "dense")
    settings = {"moe": moe, "initialize_from": str(path), "learning_rate": 1e-30}
    outcome = run_job(processes=2, ep=2, max_steps=1, **settings)
    path.rename(dense.directory)
    actual, expected = outcome.tensors(), dense.tensors()
    wi = actual["model.encoder.layers.1.feed_forward.experts.wi_EMH"]
    assert wi.shape == (4, 32, 64)
    for expert in wi:
        assert torch.equal(expert, expected["model.encoder.layers.1.feed_forward.wi_MH"])
    assert torch.equal(actual["model.target_embedding_VM"], expected["model.target_embedding_VM"])
    run_job(processes=1, ep=1, max_steps=2, into=outcome, **settings)  # the path does not exist any more


def test_what_does_not_fit_is_an_error_before_training(run_job, dense, alone, prepared):
    path = str(dense.directory)
    with pytest.raises(JobFailed, match=r"expert_dim=32, but .* ffn_dim=64, .* set model.moe.expert_dim=64"):
        run_job(processes=1, ep=1, initialize_from=path)
    vocabulary = vocabulary_sha256(Path(prepared.vocabulary))
    _, eight = build_model(prepared, MoEConfig(num_experts=8, expert_dim=32))
    with pytest.raises(ValueError, match=r"experts.wi_EMH is \[8, 32, 32\] here, .* is \[4, 32, 32\] there"):
        initialize_from(alone.directory, eight, vocabulary)
    _, plain = build_model(prepared, MoEConfig())
    with pytest.raises(ValueError, match=r"feed_forward.wi_MH is not there"):
        initialize_from(alone.directory, plain, vocabulary)
    _, shared = build_model(prepared, MoEConfig(num_experts=4, expert_dim=64, shared_experts=1))
    with pytest.raises(ValueError, match=r"shared_experts=1 would be added .* set model.moe.shared_experts=0; .* not"):
        initialize_from(dense.directory, shared, vocabulary)
    _, shared = build_model(prepared, MoEConfig(num_experts=4, expert_dim=32, shared_experts=1))
    with pytest.raises(ValueError, match=r"it has model.moe.shared_experts=0; set these; .*wi_MH is not there"):
        initialize_from(alone.directory, shared, vocabulary)
    with pytest.raises(ValueError, match="another vocabulary"):
        initialize_from(dense.directory, plain, "0" * 64)
    with pytest.raises(ValueError, match="is neither a checkpoint"):
        initialize_from(Path(prepared.vocabulary), plain, vocabulary)
    _, four = build_model(prepared, MoEConfig(num_experts=4, expert_dim=32))
    initialize_from(alone.directory, four, vocabulary)
    assert torch.equal(
        dict(four.named_parameters())["target_embedding_VM"], alone.tensors()["model.target_embedding_VM"]
    )
