"""Decoding on cuda:0 gives the hypotheses of the CPU, and the host waits only where the tables say."""

import pytest

from tests.cuda.decoding import translate
from tests.gates import GATES

# The waits of one step in which no hypothesis ends, with one MoE layer: a step has to know if one does.
SEARCH = [("decode/search/rows.py:finish", "nonzero")]
CLOSE_UP = [("decode/search/memory.py:_close_up", "_local_scalar_dense")]  # every eighth step of a flattened beam
REORDER = [("decode/search/memory.py:reorder", "nonzero")]
COUNTS = [("model/moe/ragged_experts.py:counts_on_host", "copy to the host")]
ROWS = [("model/moe/route.py:ragged_route", "_local_scalar_dense")]
BF16 = []  # experts compute without the number of their rows
SLOTS = [("model/moe/routing.py:slots", "_local_scalar_dense")]
TAKEN = [("model/moe/gates/expert_choice.py:selection_of_mask", "nonzero")]


def check(translations, tolerance, waits):
    """waits: of a step in which no hypothesis ends."""
    for cpu_hypotheses, cuda_hypotheses in zip(translations.cpu_hypotheses, translations.cuda_hypotheses, strict=True):
        assert [h.tokens for h in cpu_hypotheses] == [h.tokens for h in cuda_hypotheses]
        assert [h.score for h in cpu_hypotheses] == pytest.approx([h.score for h in cuda_hypotheses], rel=tolerance)
    assert len({tuple(hypotheses[0].tokens) for hypotheses in translations.cpu_hypotheses}) > 1
    assert {tuple(step) for step in translations.waits} <= {tuple(sorted(waits)), tuple(sorted(waits + CLOSE_UP))}
    assert tuple(sorted(waits)) in {tuple(step) for step in translations.waits}


@pytest.mark.parametrize("gate", GATES)
def test_every_gate(on_impostor, gate):
    check(on_impostor(translate, gate), 1e-5, SEARCH + (TAKEN if gate == "balanced" else ROWS) + COUNTS)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 1e-2), ("fp64", 1e-12)])
def test_every_precision(on_impostor, precision, tolerance):
    waits = SEARCH + (BF16 if precision == "bf16" else ROWS + COUNTS)
    check(on_impostor(translate, "top2", precision=precision), tolerance, waits)


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ({"beam": 1}, SEARCH),
        ({"beam_memory": "reordered"}, SEARCH + REORDER),
        ({"n_best": 3, "coverage_penalty": 0.2, "with_prefix": True}, SEARCH),
        ({"search": "sample", "n_best": 3, "min_length": 6}, SEARCH),
        ({"search": "sample", "n_best": 2, "top_k": 20, "top_p": 0.9, "temperature": 0.7, "min_length": 6}, SEARCH),
    ],
    ids=str,
)
def test_a_dense_model_waits_once_a_step(on_impostor, settings, waits):
    check(on_impostor(translate, None, **settings), 1e-5, waits)


def test_a_capacity_of_experts(on_impostor):
    check(on_impostor(translate, "top2", capacity_factor=1.0), 1e-5, SEARCH + SLOTS + ROWS + COUNTS)
