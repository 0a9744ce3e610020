"""A model with a changed vocabulary starts from the weights of the tiny run in tests/fixtures/run-0.2.0."""

import pytest
import torch

from pipeline.config import ROOT
from pipeline.engine.checkpoint.weights import read_parts, read_state
from pipeline.model.config import ModelConfig
from pipeline.model.initialization import Part
from pipeline.model.transformer import Transformer
from pipeline.schema import build
from pipeline.train.upcycling import initialize_from
from pipeline.vocab.rows import RowSources

(CHECKPOINT,) = (ROOT / "tests/fixtures/run-0.2.0/finished/train").glob("*/checkpoints/step-*")
STATE = read_state(CHECKPOINT)
NAME = "target_embedding_VM"
ROWS = [[3], [0], [7, 7, 8], *([index] for index in range(400)), [5, 6]]
SOURCES = RowSources(vocabulary=STATE["vocabulary"], source=ROWS, target=ROWS)


def model_of(num_pieces, **changes):
    config = build(ModelConfig, {**STATE["model"], **changes})
    return Transformer(
        config, source_vocabulary=num_pieces, target_vocabulary=num_pieces, shared=True, max_positions=64
    )


@pytest.fixture
def old_VM():
    embedding = {NAME: torch.empty(400, STATE["model"]["dim"])}
    read_parts(CHECKPOINT, embedding, {})
    return embedding[NAME]


def test_rows_are_means_of_old_ones_and_other_weights_are_copies(old_VM):
    plain, model = model_of(400), model_of(len(ROWS))
    initialize_from(CHECKPOINT, plain, STATE["vocabulary"])
    initialize_from(CHECKPOINT, model, "of the new one", row_sources=SOURCES)
    new_VM = model.get_parameter(NAME).detach()
    assert torch.equal(new_VM[:2], old_VM[[3, 0]])
    torch.testing.assert_close(new_VM[2], (2 * old_VM[7] + old_VM[8]) / 3)
    assert torch.equal(new_VM[3:-1], old_VM)
    torch.testing.assert_close(new_VM[-1], (old_VM[5] + old_VM[6]) / 2)
    copies = dict(plain.named_parameters())
    for name, parameter in model.named_parameters():
        if name != NAME and ".router." not in name:
            assert torch.equal(parameter, copies[name]), name


def test_a_process_gets_its_part_of_the_rows_and_columns():
    whole = model_of(len(ROWS))
    initialize_from(CHECKPOINT, whole, "of the new one", row_sources=SOURCES)
    expected_VM = whole.get_parameter(NAME).detach()
    for first_V, first_M, num_M in ((0, 0, 12), (202, 0, 12), (202, 6, 6)):
        part = model_of(len(ROWS))
        part.target_embedding_VM = torch.nn.Parameter(torch.empty(202, num_M))
        part.source_embedding_VM = part.target_embedding_VM
        parts = {NAME: Part(shape=(len(ROWS), 12), starts=(first_V, first_M))}
        initialize_from(CHECKPOINT, part, "of the new one", parts, SOURCES)
        rows, columns = slice(first_V, first_V + 202), slice(first_M, first_M + num_M)
        assert torch.equal(part.get_parameter(NAME), expected_VM[rows, columns])


def test_a_checkpoint_of_the_new_vocabulary_is_copied(old_VM):
    """A run that goes on from an extended one has rows.json too, and the weights fit already."""
    model = model_of(400)
    other = RowSources(vocabulary="of an older one", source=ROWS, target=ROWS)
    initialize_from(CHECKPOINT, model, STATE["vocabulary"], row_sources=other)
    assert torch.equal(model.get_parameter(NAME), old_VM)
    with pytest.raises(ValueError, match="was trained with another vocabulary"):
        initialize_from(CHECKPOINT, model, "of the new one", row_sources=other)
    with pytest.raises(ValueError, match=r"target_embedding_VM is \[400, 12\] here, .* is \[404, 12\] there"):
        initialize_from(CHECKPOINT, model, "of the new one", row_sources=SOURCES)
