"""The best continuations against a sort of all continuations."""

import pytest
import torch

from pipeline.decode.search.candidates import CHUNK, best, log_normalizer


def sorted_all(logits, score, normalizer, num):
    """Return the best continuations by a stable sort, in which the lower index wins a tie."""
    n = len(score)
    total = logits.to(torch.promote_types(logits.dtype, torch.float32)) + (score.flatten() - normalizer).unsqueeze(1)
    values, index = total.view(n, -1).sort(dim=1, descending=True, stable=True)
    return values[:, :num], index[:, :num] // logits.shape[1], index[:, :num] % logits.shape[1]


def drawn(n, K, V, dtype, *, levels=None):
    source = torch.Generator().manual_seed(V)
    logits = torch.randn(n * K, V, generator=source) * 3
    if levels:
        logits = (logits * levels).round() / levels  # many are equal
    score = torch.randn(n, K, generator=source)
    if levels:
        score = score.round()
    return logits.to(dtype), score.to(torch.promote_types(dtype, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("V", [7, CHUNK * 20, CHUNK * 20 + 1, CHUNK * 21 - 1])
@pytest.mark.parametrize("levels", [None, 1])
def test_candidates_are_the_first_of_all_sorted(dtype, V, levels):
    logits, score = drawn(5, 3, V, dtype, levels=levels)
    normalizer = torch.full((15,), 2.0, dtype=score.dtype) if levels else log_normalizer(logits)
    pairs = zip(best(logits, score, normalizer, 6), sorted_all(logits, score, normalizer, 6), strict=True)
    assert all(torch.equal(actual, expected) for actual, expected in pairs)


def test_what_is_banned_comes_last_and_is_a_token():
    """A forced prefix leaves one token of each hypothesis. At first only one hypothesis may be continued."""
    logits, score = drawn(2, 4, CHUNK * 20 + 5, torch.float32)
    allowed = [3, CHUNK * 20 + 4]
    banned = torch.full_like(logits, -torch.inf)
    for row in range(8):
        banned[row, allowed[row // 4]] = logits[row, allowed[row // 4]]
    score[1, 1:] = -torch.inf
    values, parent, token = best(banned, score, log_normalizer(logits), 8)
    assert values.isfinite().sum(dim=1).tolist() == [4, 1]
    assert token[0, :4].tolist() == [3] * 4
    assert (parent[1, 0], token[1, 0]) == (0, allowed[1])
    expected = sorted_all(banned, score, log_normalizer(logits), 8)
    assert all(torch.equal(*pair) for pair in zip((values, parent, token), expected, strict=True))


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.bfloat16, 1e-5)])
def test_normalizer(dtype, near):
    """The tolerance is for the difference of two numbers of about 10."""
    logits, _ = drawn(100, 4, 1000, dtype)
    expected = logits.double().logsumexp(dim=-1)
    assert (log_normalizer(logits).double() - expected).abs().max() < near
