"""The decisions of a router are recorded and replayed; its statistics are not."""

import torch

from pipeline.model.decisions import Decisions


def test_decisions_are_replayed_and_statistics_are_not():
    scores = torch.tensor([[0.1, 0.9], [0.8, float("nan")]])
    with Decisions() as recording:
        chosen, not_finite = scores.nan_to_num().argmax(dim=-1), torch.count_nonzero(scores - scores)
    assert recording.recorded_N.tolist() == chosen.tolist() == [1, 0]
    other = torch.tensor([[0.9, 0.1], [0.2, 0.3]])
    with Decisions(recording.recorded_N):
        replayed, other_not_finite = other.argmax(dim=-1), torch.count_nonzero(other - other)
    assert replayed.tolist() == [1, 0]
    assert (int(not_finite), int(other_not_finite)) == (1, 0)
