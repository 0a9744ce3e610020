"""One of four processes compares GShard's three annotations with one device, on parameters and activations.

An error names the difference. Run by test_annotations.py with RANK, WORLD_SIZE and BABELSHARD_RENDEZVOUS.
"""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

from pipeline.jobs.rendezvous import join_job
from pipeline.model.feed_forward import FeedForward
from pipeline.model.initialization import initialize
from pipeline.model.moe.experts import Experts
from pipeline.parallel.annotations import name_letters, replicate, shard, split
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh

RANK = int(os.environ["RANK"])


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def whole(*shape):
    """Return a random tensor, the same on every process."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()


def parameters_of(module):
    initialize(module, 1)
    module.double()
    name_letters(module)
    return module


def check_each_word(mesh):
    """Check parts and gradients of a tensor [4, 8]. The axes expert and model have two processes each."""
    weight_EM = whole(4, 8)
    factor_EM = whole(4, 8).detach().cos()
    expert, model = mesh.rank("expert"), mesh.rank("model")
    rows, columns = slice(2 * expert, 2 * expert + 2), slice(4 * model, 4 * model + 4)
    once = split(weight_EM, "E", "expert", letters="EM")
    twice = split(once, "M", "model")  # `once` has kept its letters
    moved = split(once, "M", "expert")
    assignment = [[3, 1], [0, 2]]
    sharded = shard(weight_EM, assignment)
    i, j = next((i, j) for i in range(2) for j in range(2) if assignment[i][j] == RANK)
    for case, annotated, part in (
        ("replicate", replicate(weight_EM), weight_EM),
        ("split", once, weight_EM[rows]),
        ("split on both", twice, weight_EM[rows, columns]),
        ("split on another letter", moved, weight_EM[:, 4 * expert : 4 * expert + 4]),
        ("replicate what was cut", replicate(twice), weight_EM),
        ("shard", sharded, weight_EM[2 * i : 2 * i + 2, 4 * j : 4 * j + 4]),
    ):
        assert torch.equal(annotated.to_local(), part), case
        assert torch.equal(annotated.full_tensor(), weight_EM), case
        (gradient,) = torch.autograd.grad((annotated.full_tensor() * factor_EM).sum(), weight_EM, retain_graph=True)
        assert torch.equal(gradient, factor_EM)


def check_why_shard_makes_its_own_groups():
    """Check that torch gathers parts in a wrong order if the ranks of a mesh do not rise (contract)."""
    mesh = DeviceMesh("cpu", torch.tensor([[3, 1], [0, 2]]))
    cut = distribute_tensor(whole(4, 8).detach(), mesh, [Shard(0), Shard(1)])
    assert not torch.equal(cut.full_tensor(), whole(4, 8).detach()), "DeviceMesh keeps the order now: use it in shard"


def check_communication(mesh):
    weight_EM = whole(4, 8)
    with CommDebugMode() as slices:
        once = split(weight_EM, "E", "expert", letters="EM")
        split(once, "M", "model")
    assert slices.get_total_counts() == 0
    with CommDebugMode() as hand_over:
        split(once, "M", "expert")
    assert hand_over.get_total_counts() == 1


def check_modules():
    """Check a feed-forward network with cut hidden units, on cut groups. The einsum rule needs an all-reduce."""
    plain, cut = (parameters_of(FeedForward(8, 16)) for _ in range(2))
    cut.wi_MH = nn.Parameter(split(cut.wi_MH, "H", "model"))
    cut.wo_HM = nn.Parameter(split(cut.wo_HM, "H", "model"))
    assert cut.wi_MH.to_local().shape == (8, 8)
    x_GSM, y_GSM = whole(4, 3, 8), whole(4, 3, 8)
    expected_GSM, found_GSM = plain(x_GSM), cut(split(y_GSM, "G", "expert", letters="GSM"))
    close(found_GSM.full_tensor(), expected_GSM)
    expected_GSM.square().sum().backward()
    found_GSM.square().sum().full_tensor().backward()
    close(y_GSM.grad, x_GSM.grad)
    for name, parameter in plain.named_parameters():
        close(cut.get_parameter(name).grad.full_tensor(), parameter.grad)


def check_einsum():
    """Check the lines of the paper's algorithm 2. Tensors are cut on G, and dispatched ones on E."""
    experts = parameters_of(Experts(4, 8, 16))
    inputs_GSM, mask_GSEC = whole(4, 3, 8), (whole(4, 3, 4, 2) > 0).double()

    def layer(inputs_GSM, mask_GSEC, hand_over, wi_EMH, wo_EHM):
        dispatched_EGCM = hand_over(torch.einsum("gsec,gsm->egcm", mask_GSEC, inputs_GSM), "E", letters="EGCM")
        hidden_EGCH = torch.einsum("egcm,emh->egch", dispatched_EGCM, wi_EMH).relu()
        expert_GECM = hand_over(torch.einsum("egch,ehm->gecm", hidden_EGCH, wo_EHM), "G", letters="GECM")
        return torch.einsum("gsec,gecm->gsm", mask_GSEC, expert_GECM)

    found_GSM = layer(
        split(inputs_GSM, "G", "expert", letters="GSM"),
        split(mask_GSEC, "G", "expert", letters="GSEC"),
        lambda t, letter, letters: split(t, letter, "expert", letters=letters),
        split(experts.wi_EMH, "E", "expert"),
        split(experts.wo_EHM, "E", "expert"),
    )
    assert found_GSM.to_local().shape == (2, 3, 8)
    close(found_GSM.full_tensor(), layer(inputs_GSM, mask_GSEC, lambda t, *_, letters: t, *experts.parameters()))


def check_hand_over_of_a_product():
    """Check docs/layouts.md: a product of two cut tensors, which then changes from H to G on one axis."""
    wi_MH, x_GSM = parameters_of(FeedForward(8, 16)).wi_MH, whole(4, 3, 8)
    x, wi = split(x_GSM, "G", "expert", letters="GSM"), split(wi_MH, "H", "model")
    with CommDebugMode() as nothing:
        h = torch.einsum("gsm,mh->gsh", x, wi)
    assert nothing.get_total_counts() == 0
    assert h.to_local().shape == (2, 3, 8)
    h = split(h, "G", "model", letters="GSH")
    assert h.to_local().shape == (1, 3, 16)
    close(replicate(h).to_local(), x_GSM @ wi_MH)


def check_gradients_of_einsum():
    """Check gradients of experts that are cut on E and on H."""
    experts = parameters_of(Experts(4, 8, 16))
    x_EYM = whole(4, 3, 8)

    def layer(x_EYM, wi_EMH, wo_EHM):
        return torch.einsum("eyh,ehm->eym", torch.einsum("eym,emh->eyh", x_EYM, wi_EMH).relu(), wo_EHM)

    expected = torch.autograd.grad(layer(x_EYM, *experts.parameters()).square().sum(), [x_EYM, *experts.parameters()])
    wi_EMH = split(split(experts.wi_EMH, "E", "expert"), "H", "model")
    wo_EHM = split(split(experts.wo_EHM, "E", "expert"), "H", "model")
    total = layer(split(x_EYM, "E", "expert", letters="EYM"), wi_EMH, wo_EHM).square().sum().full_tensor()
    for actual, gradient in zip(torch.autograd.grad(total, [x_EYM, *experts.parameters()]), expected, strict=True):
        close(actual, gradient)


def check_a_limit_of_torch():
    """Check that torch cannot yet differentiate an einsum that permutes the dimensions of its product (contract)."""
    x_GSM, mask_GSEC = whole(4, 3, 8), whole(4, 3, 4, 2)
    parts = split(mask_GSEC, "G", "expert", letters="GSEC"), split(x_GSM, "G", "expert", letters="GSM")
    total = torch.einsum("gsec,gsm->egcm", *parts).square().sum().full_tensor()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        total.backward()


def check_errors(mesh):
    """Check errors, which are the same on every process and come before any message."""
    with pytest.raises(ValueError, match="E of EM has size 5, which is not divisible by 2 processes; choose 4 or 6"):
        split(whole(5, 8), "E", "expert", letters="EM")
    with pytest.raises(ValueError, match="dimension 1 has size 7"):
        shard(whole(4, 7), [[0, 1], [2, 3]])
    with pytest.raises(ValueError, match="names each of 4 processes once"):
        shard(whole(4, 8), [[0, 1], [2, 2]])
    with pytest.raises(ValueError, match="cannot cut a tensor of 2"):
        shard(whole(4, 8), [0, 1, 2, 3])
    with pytest.raises(ValueError, match="there is no H in EM"):
        split(whole(4, 8), "H", "expert", letters="EM")
    with pytest.raises(ValueError, match="there is no axis rows; the mesh has data, expert, model"):
        split(whole(4, 8), "E", "rows", letters="EM")
    with pytest.raises(ValueError, match="pass letters='GSM' of an activation, or tag"):
        split(whole(4, 8), "E", "expert")


def main():
    torch.set_num_threads(1)
    join_job(device=torch.device("cpu"), timeout=120)
    sizes = {"data": 1, "expert": 2, "model": 2}
    mesh = Mesh.build(Layout(table={"G": ("data",)}, sizes=sizes), torch.device("cpu"))
    with pytest.raises(ValueError, match="annotate inside `with"):
        replicate(whole(2, 2))
    with mesh.devices:
        check_each_word(mesh)
        check_why_shard_makes_its_own_groups()
        check_communication(mesh)
        check_errors(mesh)
    with mesh.submesh("expert", "model"):  # torch plans a product for seconds if the mesh has four axes
        check_modules()
        check_einsum()
        check_hand_over_of_a_product()
        check_gradients_of_einsum()
        check_a_limit_of_torch()
    dist.barrier()
    if RANK == 0:
        print("equal")


if __name__ == "__main__":
    main()
