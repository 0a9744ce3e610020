"""The decoder's steps: two memories of the past, their size, the attention, and lower precision."""

from collections import Counter

import pytest
import torch

from pipeline.batch.assembly import assemble
from pipeline.batch.config import GroupShape
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import set_precision
from pipeline.decode.search.incremental import DecoderState
from pipeline.decode.search.memory import CLOSE_UP
from pipeline.decode.search.search import Request, search
from pipeline.vocab.symbols import EOS, PAD
from tests.gates import moe_of
from tests.unit.model.test_transformer import MODERN, Pairs, built, random_pairs, small

SOURCES = [[4, *pair[0]] for pair in random_pairs(12, seed=3).rows]
SOURCE_BL = torch.tensor([[*source, *[PAD] * (9 - len(source))] for source in SOURCES])
BEAM = 3
MEMORIES = ("flattened", "reordered")


def sharp(precision="fp64", **changes):
    model = built(small(**changes)).eval()
    with torch.no_grad():
        model.target_embedding_VM.mul_(3.0)
    set_precision(model, precision)
    return model


@pytest.fixture(scope="module", params=[{}, MODERN], ids=["relu", "modern"])
def model(request):
    return sharp(**request.param)


@torch.inference_mode()
def walk(state, *, steps=3 * CLOSE_UP):
    """Return the logits of steps in which hypotheses swap, end and multiply, and sentences are dropped."""
    source, n, logits = torch.Generator().manual_seed(1), len(SOURCES), []
    for step in range(steps):
        logits.append(state.step(torch.randint(4, 50, (n * BEAM,), generator=source)).clone())
        parent = torch.randint(0, BEAM, (n, BEAM), generator=source) * (torch.rand(n, 1, generator=source) < 0.7)
        state.reorder((parent + torch.arange(n).unsqueeze(1) * BEAM).flatten())
        if step in (5, 12):
            kept = torch.randperm(n, generator=source)[: n - 4].sort().values
            state.keep(kept)
            n -= 4
    return logits


def test_memories_give_equal_logits(model):
    """The logits are float64 and differ only by the order of sums."""
    walks = [walk(DecoderState(model, SOURCE_BL, beam=BEAM, max_length=40, memory=name)) for name in MEMORIES]
    for flattened, reordered in zip(*walks, strict=True):
        torch.testing.assert_close(flattened, reordered, atol=1e-11, rtol=0)


def test_experts_by_task_are_those_of_each_sentences_pair():
    """Steps of a batch of several pairs, which shrinks, give the logits of a pass over known targets."""
    model = sharp(moe=moe_of("task", encoder_gate={"kind": "task", "by": "source"}))
    pairs = torch.tensor([3, 0, 2, 1, 1, 0, 3, 2, 2, 1, 0, 3])
    state = DecoderState(model, SOURCE_BL, beam=1, max_length=8, pair_n=pairs)
    inputs = torch.randint(4, 50, (6, len(SOURCES)), generator=torch.Generator().manual_seed(1))
    inputs[0], kept = EOS, torch.arange(len(SOURCES))
    data = [Pairs([]) for _ in range(4)]
    rows = []
    for source, pair, target in zip(SOURCES, pairs.tolist(), inputs[1:].T.tolist(), strict=True):
        data[pair].rows.append((source, [*target, EOS]))
        rows.append([(pair, len(data[pair].rows) - 1)])
    batch = assemble(rows, GroupShape(rows=len(rows), source=9, target=6), data)
    with torch.inference_mode():
        expected_BTM, _ = model.decode(batch, model.encode(batch)[0])
        for step, tokens in enumerate(inputs):
            logits = state.step(tokens[kept])
            expected = expected_BTM[kept, step] @ model.target_embedding_VM.T
            torch.testing.assert_close(logits, expected, atol=1e-11, rtol=0)
            if step == 2:
                kept = torch.tensor([1, 3, 6, 7, 11])
                state.keep(kept)


def test_a_direction_without_experts_is_refused():
    model = sharp(moe=moe_of("task"))
    for pair, name in (("", "without a source language"), ("tr:en", "tr:en")):
        with pytest.raises(ValueError, match=f"the direction {name} has no experts: .* trained on de:en, fr:en, en:de"):
            search(model, [Request(source=SOURCES[0], pair=pair)], DecodeConfig())


def test_slots_that_nobody_sees_are_left_out(model):
    state = DecoderState(model, SOURCE_BL, beam=BEAM, max_length=40, memory="flattened")
    walk(state)
    assert state.past.used < 2 * CLOSE_UP * BEAM  # of 3 times as many that were written


def test_memories_give_the_same_translations(model):
    batch = [Request(source=source) for source in SOURCES]
    outcomes = [search(model, batch, DecodeConfig(n_best=3, beam_memory=name)) for name in MEMORIES]
    for flattened, reordered in zip(*outcomes, strict=True):
        assert [h.tokens for h in flattened] == [h.tokens for h in reordered]
        assert [h.score for h in flattened] == pytest.approx([h.score for h in reordered], abs=1e-10)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_memory_is_what_the_arithmetic_says_and_does_not_grow(memory, precision):
    """It has 2 · layers · n · N · D · (L + K · T) numbers. The tolerance of 10 % is for the mask at this width."""
    config = small(dim=64)
    model = built(config).eval()
    set_precision(model, precision)
    state = DecoderState(model, SOURCE_BL, beam=BEAM, max_length=40, memory=memory)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in state.tensors}
    n, L = SOURCE_BL.shape
    numbers = 2 * config.decoder_layers * n * config.heads * config.key_dim * (L + BEAM * 40)
    expected = numbers * (2 if precision == "bf16" else 4)
    assert expected <= sum(storages.values()) <= 1.1 * expected
    walk(state)
    large = {t.untyped_storage().data_ptr() for t in state.tensors if t.dim() == 5}
    assert large <= set(storages)


def test_attention_is_that_of_the_packed_model(model):
    """The reference is computed from the inputs of the last cross-attention in the training forward pass."""
    source, target = SOURCES[0], [7, 9, 11, EOS]
    layer = model.decoder.layers[-1].cross_attention
    inputs = []
    handle = layer.register_forward_pre_hook(lambda _, args: inputs.append(args))
    shape = GroupShape(rows=1, source=len(source), target=len(target))
    model(assemble([[(0, 0)]], shape, [Pairs([(source, target)])]), label_smoothing=0.0)
    handle.remove()
    x, memory, _ = inputs[0]
    query, key = (torch.einsum("blm,mnd->bnld", t, w) for t, w in ((x, layer.wq_MND), (memory, layer.wk_MND)))
    expected = ((query @ key.mT) / layer.head_dim**0.5).softmax(dim=-1).mean(dim=1)[0]
    state = DecoderState(
        model, torch.tensor([[*source, PAD, PAD]]), beam=1, max_length=8, memory="flattened", attention=True
    )
    with torch.inference_mode():
        for at, token in enumerate([EOS, *target[:-1]]):
            state.step(torch.tensor([token]))
            torch.testing.assert_close(state.attention_BL[0, : len(source)], expected[at], atol=1e-10, rtol=0)
            assert not state.attention_BL[0, len(source) :].any()


def test_idle_rows_go_to_no_expert(model):
    live = torch.rand(len(SOURCES) * BEAM, generator=torch.Generator().manual_seed(1)) < 0.5
    states = [DecoderState(model, SOURCE_BL, beam=BEAM, max_length=4) for _ in range(2)]
    routed = Counter()
    for name, moe in model.moe_layers().items():
        moe.experts.register_forward_pre_hook(lambda _, args, name=name: routed.update({name: len(args[0])}))
    tokens = torch.arange(len(live)) % 40 + 5
    with torch.inference_mode():
        every, some = states[0].step(tokens), states[1].step(tokens, live)
    torch.testing.assert_close(some[live], every[live], atol=1e-12, rtol=0)
    assert routed["decoder.2"] == 2 * len(live) + 2 * int(live.sum())


@pytest.mark.parametrize("memory", MEMORIES)
def test_bfloat16_is_near(memory):
    """Log-probabilities of 24 steps are compared. A bfloat16 logit of up to 16 is rounded by up to 1/32."""
    states = [
        DecoderState(sharp(precision, num_experts=0), SOURCE_BL, beam=BEAM, max_length=40, memory=memory)
        for precision in ("fp32", "bf16")
    ]
    exact, rounded = (torch.cat([logits.float().log_softmax(dim=-1) for logits in walk(state)]) for state in states)
    assert rounded.dtype == torch.float32
    difference = (exact - rounded).abs()
    assert 1e-4 < difference.mean() < 0.05
    assert difference.max() < 0.5


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_bfloat16_keeps_norms_and_gates(norm):
    model = sharp("bf16", norm=norm)
    kept = {name for name, p in model.named_parameters() if p.dtype == torch.float32}
    assert kept == {name for name, _ in model.named_parameters() if "norm" in name or "router" in name}
