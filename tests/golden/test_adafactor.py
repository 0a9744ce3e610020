"""Adafactor equals that of transformers (adafactor.py wrote its numbers to adafactor.json), whole and in pieces."""

import itertools
import json

import pytest
import torch

from pipeline.engine.adafactor import COLUMN, FULL, ROW, Adafactor, Block, Contents, Fragment, Matrices
from tests.golden.adafactor import FILE, LEARNING_RATE, PROBLEMS, problem

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))


def train(optimizer, tensor, gradients):
    for gradient in gradients:
        tensor.grad = gradient.clone()
        optimizer.step()
    return tensor.detach()


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_results_are_those_of_transformers(name, dtype, tolerance):
    """Tolerances allow some ten roundings of 1e-16 and 6e-8."""
    weights, gradients = (x.to(dtype) for x in problem(name))
    parameter = torch.nn.Parameter(weights)
    result = train(Adafactor([parameter], lr=LEARNING_RATE), parameter, gradients)
    expected = torch.tensor(GOLDEN[name], dtype=dtype)
    assert not torch.allclose(expected, problem(name)[0].to(dtype), rtol=1e-3, atol=0)  # weights have changed
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def test_all_of_them_in_one_flat_tensor():
    """Tensors are laid out as ZeRO does it, with padding at the end."""
    cases = {name: problem(name) for name in PROBLEMS}
    fragments, place = [], 0
    for name, (weights, _) in cases.items():
        matrices = Matrices.of(weights.shape)
        fragments.append(Fragment(name=name, matrices=matrices, start=0, size=weights.numel(), place=place))
        place += weights.numel()
    padding = torch.zeros(3, dtype=torch.float64)
    flat = torch.nn.Parameter(torch.cat([*(w.flatten() for w, _ in cases.values()), padding]))
    gradients = [torch.cat([*(g[step].flatten() for _, g in cases.values()), padding]) for step in range(5)]
    optimizer = Adafactor([flat], lr=LEARNING_RATE)
    optimizer.lay_out(flat, Contents(fragments=fragments))
    result = train(optimizer, flat, gradients)
    for f in fragments:
        expected = torch.tensor(GOLDEN[f.name], dtype=torch.float64).flatten()
        torch.testing.assert_close(result[f.place : f.place + f.size], expected, rtol=1e-12, atol=1e-12)
    assert not result[place:].any()


def test_state_is_small_and_by_matrix():
    """The state has R + C numbers for a matrix [R, C], and all numbers for a vector."""
    for name, (shape, _) in PROBLEMS.items():
        weights, gradients = problem(name)
        parameter = torch.nn.Parameter(weights)
        optimizer = Adafactor([parameter], lr=LEARNING_RATE)
        train(optimizer, parameter, gradients)
        state = optimizer.state[parameter]
        assert state["step"] == len(gradients)
        if len(shape) == 1:
            assert not state[ROW]
            assert state[FULL].shape == shape
        else:
            B, R, C = (1, *shape)[-3:]
            assert FULL not in state
            assert (state[ROW][""].shape, state[COLUMN][""].shape) == ((B, R), (B, C))


def test_weight_decay_is_decoupled_as_in_adamw():
    """Decay subtracts lr · weight_decay times the weights, and changes neither update nor scale."""
    weights, gradients = problem("matrix")
    plain, decayed = torch.nn.Parameter(weights.clone()), torch.nn.Parameter(weights.clone())
    train(Adafactor([plain], lr=LEARNING_RATE), plain, gradients[:1])
    train(Adafactor([decayed], lr=LEARNING_RATE, weight_decay=0.5), decayed, gradients[:1])
    torch.testing.assert_close(decayed, plain - LEARNING_RATE * 0.5 * weights, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("matrices", [Matrices(3, 2, 4), Matrices(1, 3, 5), Matrices(1, 1, 6, factored=False)])
def test_boxes_cover_every_run_once_and_lie_where_they_say(matrices):
    numbers = torch.arange(matrices.B * matrices.R * matrices.C)
    whole = numbers.view(matrices.B, matrices.R, matrices.C)
    for start, end in itertools.combinations(range(len(numbers) + 1), 2):
        fragment = Fragment(name="", matrices=matrices, start=start, size=end - start, place=7)
        flat = torch.full((7 + end - start + 2,), -1)
        flat[7 : 7 + end - start] = numbers[start:end]
        numbers_of_boxes = []
        boxes = list(fragment.boxes())
        for box in boxes:
            part = box.of(flat)
            assert torch.equal(part, whole[box.matrices, box.rows, box.columns])
            numbers_of_boxes += part.flatten().tolist()
        assert numbers_of_boxes == list(range(start, end))
        assert len(boxes) <= 5


@pytest.mark.parametrize("block", [Block(2, 0, 2, 5), Block(0, 3, 4, 2)])
def test_boxes_of_a_block_say_where_it_lies_in_the_whole(block):
    """Rows 2 and 3, or columns 3 and 4, of three matrices."""
    whole = torch.arange(60).view(3, 4, 5)
    rows, columns = slice(block.row, block.row + block.R), slice(block.column, block.column + block.C)
    numbers = whole[:, rows, columns].flatten()
    for start, end in itertools.combinations(range(len(numbers) + 1), 2):
        fragment = Fragment(name="", matrices=Matrices(3, 4, 5), start=start, size=end - start, place=0, block=block)
        flat, numbers_of_boxes = numbers[start:end], []
        for box in fragment.boxes():
            assert torch.equal(box.of(flat), whole[box.matrices, box.rows, box.columns])
            numbers_of_boxes += box.of(flat).flatten().tolist()
        assert numbers_of_boxes == flat.tolist()
