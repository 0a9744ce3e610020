"""Expert choice (arXiv:2202.09368, section 3.2) as loops in float64, by hand, and sentence by sentence."""

import math

import pytest
import torch

from pipeline.model.moe.gates.expert_choice import expert_choice_gating


def expert_choice(scores, pool, capacity_factor):
    """Return {(token, expert): weight} of the tokens in `pool`: S = softmax(X·Wg), G, I = TopK(S^T, k)."""
    E = len(scores[0])
    k = math.ceil(len(pool) * capacity_factor / E)
    weights = {}
    for e in range(E):
        for s in sorted(pool, key=lambda s: (-scores[s][e], s))[:k]:
            weights[s, e] = scores[s][e]
    return weights


def dense_of(weights, S, E):
    dense = torch.zeros(S, E, dtype=torch.float64)
    for (s, e), weight in weights.items():
        dense[s, e] = weight
    return dense


def sample(G, S, E, seed):
    source = torch.Generator().manual_seed(seed)
    logits = torch.randn(G, S, E, generator=source, dtype=torch.float64) * 2
    logits[:, 1::4] = logits[:, : S - 1 : 4]  # ties, which go to the earlier token
    return logits, torch.rand(G, S, generator=source) > 0.2, torch.randint(0, 4, (G, S), generator=source)


@pytest.mark.parametrize("capacity_factor", [0.5, 1.25, 2.0])
@pytest.mark.parametrize(("G", "S", "E"), [(1, 1, 2), (3, 40, 4), (2, 50, 7)])
def test_training_equals_the_loop_of_the_paper(G, S, E, capacity_factor):
    logits, valid, _ = sample(G, S, E, seed=S * E)
    selection = expert_choice_gating(logits, capacity_factor, valid_GS=valid)
    assert selection.capacity == math.ceil(capacity_factor * S / E)
    assert selection.losses == {}
    for g in range(G):
        pool = [s for s in range(S) if valid[g, s]]
        weights = expert_choice(logits[g].softmax(-1).tolist(), pool, capacity_factor)
        torch.testing.assert_close(selection.dense()[g].sum(-1), dense_of(weights, S, E))


@pytest.mark.parametrize("capacity_factor", [0.5, 1.25, 2.0])
@pytest.mark.parametrize(("G", "S", "E"), [(1, 1, 2), (3, 40, 4), (2, 50, 7)])
def test_evaluation_equals_the_loop_over_sentences(G, S, E, capacity_factor):
    """Every group has the same numbers of sentences, at any place, and padding has numbers of sentences, too."""
    logits, valid, sentence = sample(G, S, E, seed=S * E)
    selection = expert_choice_gating(logits, capacity_factor, valid_GS=valid, sentence_GS=sentence)
    assert selection.capacity is None
    for g in range(G):
        weights = {}
        for number in range(4):
            pool = [s for s in range(S) if valid[g, s] and sentence[g, s] == number]
            weights |= expert_choice(logits[g].softmax(-1).tolist(), pool, capacity_factor)
        torch.testing.assert_close(selection.dense()[g].sum(-1), dense_of(weights, S, E))


def test_by_hand():
    """Four tokens, two experts, capacity factor 1, so each expert takes two.

    e0 scores 0.9, 0.6, 0.8, 0.2: takes the first and third; e1 scores 0.1, 0.4, 0.2, 0.8: the fourth and second. With
    factor 1.5 each takes three, and with 2 everything, a softmax mixture.
    """
    logits = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.2, 0.8]]], dtype=torch.float64).log()
    valid = torch.ones(1, 4, dtype=torch.bool)
    selection = expert_choice_gating(logits, 1.0, valid_GS=valid)
    assert selection.token_X.tolist() == [0, 2, 1, 3]
    assert selection.weight_X.tolist() == pytest.approx([0.9, 0.8, 0.4, 0.8])  # scores, not normalised
    assert int(selection.unserved) == 0
    half_more = expert_choice_gating(logits, 1.5, valid_GS=valid)
    assert half_more.token_X.tolist() == [0, 1, 2, 1, 2, 3]
    torch.testing.assert_close(expert_choice_gating(logits, 2.0, valid_GS=valid).dense().sum(-1), logits.softmax(-1))


def test_padding_lowers_the_number_that_is_taken_but_not_the_capacity():
    logits = torch.zeros(1, 8, 2)
    valid = torch.tensor([[True, False, True, False, True, False, False, False]])
    selection = expert_choice_gating(logits, 1.0, valid_GS=valid)
    assert selection.capacity == 4
    assert selection.filled_X.tolist() == [True, True, False, False] * 2  # ceil(3 · 1 / 2)
    assert selection.token_X[selection.filled_X].tolist() == [0, 2, 0, 2]
    assert int(selection.unserved) == 1


def test_a_sentence_gets_the_same_alone_packed_and_batched():
    """Sentences of 5, 1 and 12 tokens get the same alone, as rows of a padded batch, and packed into one group."""
    lengths, E = [5, 1, 12], 4
    source = torch.Generator().manual_seed(1)
    sentences = [torch.randn(n, E, generator=source, dtype=torch.float64) for n in lengths]

    def gate(logits_GSE, valid_GS, sentence_GS):
        selection = expert_choice_gating(logits_GSE, 1.25, valid_GS=valid_GS, sentence_GS=sentence_GS)
        return selection.dense().sum(-1)

    alone = [
        gate(s.unsqueeze(0), torch.ones(1, len(s), dtype=torch.bool), torch.full((1, len(s)), 7))[0] for s in sentences
    ]
    for n, weights in zip(lengths, alone, strict=True):
        assert (weights > 0).sum(0).tolist() == [math.ceil(n * 1.25 / E)] * E
    packed_valid = torch.ones(1, 20, dtype=torch.bool)
    packed_valid[:, 18:] = False
    packed_logits = torch.cat([*sentences, torch.full((2, E), 5.0, dtype=torch.float64)]).unsqueeze(0)
    numbers = torch.tensor([[900] * 5 + [-3] + [2**40] * 12 + [900, -3]])
    torch.testing.assert_close(gate(packed_logits, packed_valid, numbers)[0, :18], torch.cat(alone))
    batch_logits = torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True)
    batch_valid = torch.arange(12) < torch.tensor(lengths).unsqueeze(1)
    rows = torch.arange(3).unsqueeze(1).expand(3, 12)
    as_groups = gate(batch_logits, batch_valid, torch.zeros_like(rows))
    as_one_group = gate(batch_logits.view(1, 36, E), batch_valid.view(1, 36), rows.reshape(1, 36)).view(3, 12, E)
    for i, n in enumerate(lengths):
        torch.testing.assert_close(as_groups[i, :n], alone[i])
        torch.testing.assert_close(as_one_group[i, :n], alone[i])


@pytest.mark.parametrize("by_sentence", [False, True])
def test_weights_reach_the_router(by_sentence):
    logits, valid, sentence = sample(2, 6, 3, seed=2)
    logits = logits + torch.arange(6).view(1, 6, 1) * 1e-2  # no ties, at which a difference quotient would jump
    logits = logits * torch.tensor([1.0, 1.1, 0.9], dtype=torch.float64)

    def weights(logits):
        sentences = sentence if by_sentence else None
        return expert_choice_gating(logits, 1.0, valid_GS=valid, sentence_GS=sentences).weight_X

    assert torch.autograd.gradcheck(weights, logits.requires_grad_())
    (gradient,) = torch.autograd.grad(weights(logits).sum(), logits)
    assert float(gradient.abs().sum()) > 0


@pytest.mark.parametrize(
    ("E", "capacity_factor", "message"),
    [(1, 1.0, "at least 2 experts"), (4, 5.0, "at most the 4"), (4, 0.0, "must be positive")],
)
def test_impossible_sizes_are_refused(E, capacity_factor, message):
    with pytest.raises(ValueError, match=message):
        expert_choice_gating(torch.zeros(1, 3, E), capacity_factor, valid_GS=torch.ones(1, 3, dtype=torch.bool))
