"""Beam search: against exhaustive search, against the teacher-forced model, and against itself in other batches."""

import itertools

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.decode.config import DecodeConfig
from pipeline.decode.incremental import DecoderState
from pipeline.decode.search import Request, length_penalty, max_length, search
from pipeline.vocab.symbols import BOS, EOS, PAD
from tests.unit.model.test_transformer import Pairs, built, random_pairs, small


@pytest.fixture(scope="module")
def model():
    """Random weights with sharp outputs, so that hypotheses differ."""
    torch.manual_seed(0)
    model = built(small()).eval()
    with torch.no_grad():
        model.target_embedding_VM.mul_(3.0)
    return model.double()


def config(**changes):
    return DecodeConfig(**{"beam": 4, "length_penalty": 1.0, "max_length_ratio": 1.0, "max_length_extra": 4, **changes})


def beam_search(model, sources, settings):
    return [best for best, *_ in search(model, [Request(source=source) for source in sources], settings)]


SOURCES = [[4, *pair[0]] for pair in random_pairs(12, seed=3).rows]


def log_probability(model, source, tokens):
    """Of tokens and their `</s>`, by the training forward pass."""
    data = Pairs([(source, [*tokens, EOS])])
    shape = GroupShape(rows=1, source=len(source), target=len(tokens) + 1)
    return -float(model(assemble([[(0, 0)]], shape, [data]), label_smoothing=0.0).nll_BT.sum())


def test_scores_are_those_of_the_training_forward_pass(model):
    """The cached, batched search against the packed model: same weights, other code."""
    for source, found in zip(SOURCES, beam_search(model, SOURCES, config()), strict=True):
        length = len(found.tokens) + 1
        if length < max_length(len(source), config()):  # at its limit a hypothesis has no `</s>`
            expected = log_probability(model, source, found.tokens) / length_penalty(length, config())
            assert found.score == pytest.approx(expected, abs=1e-5)


def test_a_wide_beam_finds_the_best_of_all_sequences():
    """Vocabulary of 8, at most 3 tokens: all sequences can be scored."""
    small_model = built(small(num_experts=0, encoder_layers=1, decoder_layers=1)).eval()
    with torch.no_grad():
        small_model.target_embedding_VM = torch.nn.Parameter(small_model.target_embedding_VM[:8] * 3)
    source, settings = [4, 9, EOS], config(beam=200, max_length_ratio=1.0, max_length_extra=1, length_penalty=0.6)
    (found,) = beam_search(small_model, [source], settings)
    words = [w for w in range(8) if w not in (BOS, PAD, EOS)]
    scored = {
        tokens: log_probability(small_model, source, list(tokens)) / length_penalty(len(tokens) + 1, settings)
        for n in range(3)
        for tokens in itertools.product(words, repeat=n)
    }
    best = max(scored, key=scored.__getitem__)
    assert found.score >= scored[best] - 1e-5


def test_one_beam_is_greedy(model):
    for source, found in zip(SOURCES, beam_search(model, SOURCES, config(beam=1)), strict=True):
        state = DecoderState(model, torch.tensor([source]), beam=1, max_length=64)
        tokens, last = [], EOS
        while len(tokens) + 1 < max_length(len(source), config()):
            logp = state.step(torch.tensor([last]))[0].log_softmax(dim=-1)
            logp[[BOS, PAD]] = -torch.inf
            last = int(logp.argmax())
            if last == EOS:
                break
            tokens.append(last)
        assert found.tokens == tokens


@pytest.mark.parametrize("size", [1, 3, 12])
def test_translations_do_not_depend_on_the_batch(model, size):
    together = beam_search(model, SOURCES, config())
    order = list(range(len(SOURCES)))[::-1]
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    for batch in batches:
        for index, found in zip(batch, beam_search(model, [SOURCES[i] for i in batch], config()), strict=True):
            assert found.tokens == together[index].tokens
            assert found.score == pytest.approx(together[index].score, abs=1e-9)


def test_output_ends_at_its_limit(model):
    settings = config(max_length_ratio=0.5, max_length_extra=1)
    for source, found in zip(SOURCES, beam_search(model, SOURCES, settings), strict=True):
        assert len(found.tokens) <= max_length(len(source), settings)


def test_length_penalty_by_hand():
    """GNMT, equation 14: ((5 + 7) / 6)^0.5 = sqrt(2)."""
    assert length_penalty(7, config(length_penalty=0.5)) == pytest.approx(2**0.5)
    assert length_penalty(1, config(length_penalty=2.0)) == 1.0
