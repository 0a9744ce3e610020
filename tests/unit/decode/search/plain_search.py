"""A plain beam search over the training forward pass, without caches, batches or padding, to compare with.

The random models here have outputs that differ enough to tell searches apart.
"""

import functools
import math

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.decode.config import DecodeConfig
from pipeline.decode.search.hypothesis import Hypothesis
from pipeline.vocab.symbols import BOS, EOS, PAD
from tests.unit.model.test_transformer import Pairs, built, random_pairs, small

SOURCES = [[4, *pair[0]] for pair in random_pairs(6, seed=3).rows]


def random_model(seed, **changes):
    """Return a float64 model that does not repeat its last token forever, and sometimes ends."""
    torch.manual_seed(seed)
    model = built(small(**{"decoder_layers": 2, **changes}), seed=seed).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embedding" not in name:
                parameter.mul_(2.0)
        model.target_embedding_VM.normal_(0, 0.5)
        model.decoder.norm.weight.mul_(-1)
        model.decoder.norm.bias.copy_(model.target_embedding_VM[EOS] * 0.8)
    return model.double()


def config(**changes):
    values = {"beam": 4, "n_best": 4, "length_penalty": 1.0, "max_length_ratio": 1.0, "max_length_extra": 4}
    return DecodeConfig(**{**values, "n_best": min(4, changes.get("beam", 4)), **changes})


@functools.cache
@torch.no_grad()
def log_probabilities(model, source, tokens):
    """Return the log-probability of every next token, and the mean attention [T, L] of the last decoder layer."""
    shape = GroupShape(rows=1, source=len(source), target=len(tokens) + 1)
    batch = assemble([[(0, 0)]], shape, [Pairs([([*source], [*tokens, EOS])])])
    inputs = []
    cross = model.decoder.layers[-1].cross_attention
    handle = cross.register_forward_hook(lambda module, args, _: inputs.append(args[:2]))
    x_TM = model.decode(batch, model.encode(batch)[0])[0][0]
    handle.remove()
    queries_TM, memory_LM = inputs[0][0][0], inputs[0][1][0]
    heads = []
    for h in range(cross.heads):
        score_TL = (queries_TM @ cross.wq_MND[:, h]) @ (memory_LM @ cross.wk_MND[:, h]).T
        heads.append((score_TL / math.sqrt(cross.head_dim)).softmax(dim=-1))
    return (x_TM[-1] @ model.target_embedding_VM.T).log_softmax(-1).tolist(), torch.stack(heads).mean(0).tolist()


def banned(token, tokens, num_new, settings):
    if token in (BOS, PAD) or (token == EOS and num_new < settings.min_length):
        return True
    n = settings.no_repeat_ngram
    grams = [(*tokens, token)[i : i + n] for i in range(len(tokens) + 2 - n)] if n else []
    return bool(grams) and grams[-1] in grams[:-1]


def normalized(score, length, attention, settings):
    base = length if settings.length_norm == "power" else (5 + length) / 6
    coverage = sum(math.log(min(sum(column), 1)) for column in zip(*attention, strict=True))
    return score / base**settings.length_penalty + settings.coverage_penalty * coverage


def plain_search(model, source, settings, prefix=(), log_probabilities=log_probabilities):
    """Return the hypotheses of a sentence, best first."""
    K = settings.beam
    limit = int(settings.max_length_ratio * len(source)) + settings.max_length_extra
    running, finished = [(0.0, list(prefix))], []
    for length in range(1, limit + 1):
        candidates = []
        for score, tokens in running:
            logp, attention = log_probabilities(model, tuple(source), tuple(tokens))
            for token, value in enumerate(logp):
                if not banned(token, tokens, length - 1, settings):
                    candidates.append((score + value, [*tokens, token], attention))
        candidates = sorted(candidates, key=lambda c: -c[0])[: 2 * K]
        for score, tokens, attention in candidates[:K]:
            if tokens[-1] == EOS or length == limit:
                text = tokens[:-1] if tokens[-1] == EOS else tokens
                finished.append((text, normalized(score, length, attention, settings), tokens[-1] != EOS))
        finished = sorted(finished, key=lambda f: -f[1])[:K]
        running = [(score, tokens) for score, tokens, _ in candidates if tokens[-1] != EOS][:K]
        if len(finished) == K:
            break
    return [Hypothesis(tokens=t, score=score, at_limit=cut) for t, score, cut in finished[: settings.n_best]]


def assert_same(actual, expected):
    """Compare tokens, and scores up to the order of float64 sums."""
    for hypotheses, references in zip(actual, expected, strict=True):
        assert [(h.tokens, h.at_limit) for h in hypotheses] == [(h.tokens, h.at_limit) for h in references]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in references], abs=1e-9)
