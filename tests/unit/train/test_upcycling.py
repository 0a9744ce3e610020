"""Gated networks and gates by task as the start of models; tests/parallel/test_upcycling.py has real training."""

import re
from dataclasses import replace

import pytest
import torch

from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.config import DroplessConfig, Top2Config
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.model.moe.gates.top_k_config import TopKConfig
from pipeline.train.upcycling import check_fit, check_tasks, initialize_from
from tests.exports import write_checkpoint
from tests.gates import PAIRS, moe_of
from tests.unit.model.test_transformer import MODERN, built, small

MOE = moe_of("top2", expert_dim=32, conditional={})
GATED, PLAIN = ({"moe": MoEConfig(), **blocks} for blocks in (MODERN, {}))


@pytest.fixture
def checkpoint(tmp_path):
    """Return a function that writes a checkpoint of a new model."""

    def write(**changes):
        model = built(small(**changes), seed=2)
        write_checkpoint(tmp_path, model)
        return tmp_path, dict(model.named_parameters())

    return write


def test_experts_become_copies_of_a_gated_network_with_all_its_matrices(checkpoint):
    directory, dense = checkpoint(**GATED)
    mixture = built(small(moe=MOE, **MODERN), seed=3)
    initialize_from(directory, mixture, "any")
    experts, place = mixture.decoder.layers[1].feed_forward, "decoder.layers.1.feed_forward"
    for matrix, letters in (("wi", "MH"), ("wu", "MH"), ("wo", "HM")):
        expected = dense[f"{place}.{matrix}_{letters}"]
        assert torch.equal(getattr(experts.experts, f"{matrix}_E{letters}"), expected.expand(4, -1, -1)), matrix
        assert torch.equal(getattr(experts.conditional.shared, f"{matrix}_{letters}"), expected), matrix
    assert torch.equal(mixture.decoder.norm.weight, dense["decoder.norm.weight"])


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        (GATED, PLAIN, "it has model.activation=swiglu model.norm=rms; set these"),
        (PLAIN, GATED, "it has model.activation=relu model.norm=layer; set these"),
        (PLAIN, {"moe": MOE, "activation": "swiglu"}, "it has model.activation=relu; set these"),
    ],
)
def test_another_activation_or_norm_is_refused_with_the_remedy(checkpoint, there, here, message):
    directory, _ = checkpoint(**there)
    with pytest.raises(ValueError, match=message):
        check_fit("old", directory, small(**here), shared=False)
    with pytest.raises(ValueError, match=message):
        initialize_from(directory, built(small(**here)), "any")


def experts(**changes):
    return {"moe": replace(MoEConfig(num_experts=4, expert_dim=16), **changes)}


def test_experts_count_as_where_they_were_trained(checkpoint):
    directory, _ = checkpoint(**experts(output_scale=0.8))
    check_fit("old", directory, small(**experts(output_scale=0.8)), shared=False)
    for function in (check_fit, started):
        with pytest.raises(ValueError, match=r"with model\.moe\.output_scale=0\.8, and with 1\.0 here; set the same"):
            function("old", directory, small(**experts()), shared=False)


def test_copies_of_a_dense_network_count_once_together(checkpoint):
    directory, _ = checkpoint(moe=MoEConfig(), ffn_dim=32)
    task = {"expert_dim": 32, "gate": TaskConfig(k=2)}
    third = {"expert_dim": 32, "gate": TaskConfig(k=3)}
    check_fit("old", directory, small(ffn_dim=32, **experts(**third, output_scale=0.333333)), shared=False)
    for changes, remedy in ((task, "0.5"), (third, "0.333333"), ({"expert_dim": 32, "output_scale": 0.8}, "1")):
        with pytest.raises(ValueError, match=rf"copies of its feed-forward .*; set model\.moe\.output_scale={remedy}$"):
            check_fit("old", directory, small(ffn_dim=32, **experts(**changes)), shared=False)
    check_fit("old", directory, small(ffn_dim=32, **experts(**task, output_scale=0.5)), shared=False)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize(
    ("there", "here", "difference"),
    [
        (
            TopKConfig(score="sigmoid", bias_rate=0.1),
            Top2Config(),
            "kind=topk score=sigmoid bias=True, .* kind=top2",
        ),
        (TopKConfig(), TopKConfig(bias_rate=0.1), "kind=topk, and it is kind=topk bias=True"),
        (DroplessConfig(k=4), DroplessConfig(), "kind=dropless k=4, and it is kind=dropless k=2"),
        (TaskConfig(k=2), TaskConfig(k=1), "kind=task k=2, and it is kind=task k=1"),
    ],
)
def test_routers_of_another_gate_are_an_error_where_they_are_frozen(
    checkpoint, caplog, there, here, difference, frozen
):
    directory, _ = checkpoint(**experts(gate=there))
    check_fit("old", directory, small(**experts(gate=there)), shared=False, trainable=["norms"])
    assert not caplog.messages
    if frozen:
        with pytest.raises(ValueError, match=f"routers were trained for a gate of .*{difference}.*; set the same gate"):
            check_fit("old", directory, small(**experts(gate=here)), shared=False, trainable=["norms"])
    else:
        check_fit("old", directory, small(**experts(gate=here)), shared=False)
        assert re.search(f"{difference} here; they must learn anew", caplog.text)


def started(name, directory, config, *, shared):
    initialize_from(directory, built(config), "any")


def by_task(pairs, by="pair"):
    moe = MoEConfig(num_experts=4, expert_dim=16, gate=TaskConfig(by=by))
    return small(moe=moe.with_pairs(pairs) if pairs else moe)


def test_a_model_by_task_starts_from_one_of_the_same_tasks_alone(tmp_path):
    write_checkpoint(tmp_path, built(by_task(PAIRS)))
    directory = tmp_path
    check_fit("it", directory, by_task(()), shared=False)  # before the run's pairs are known
    check_tasks(str(directory), by_task(PAIRS))
    check_tasks(str(directory), small())
    for other in (by_task(PAIRS[::-1]), by_task(PAIRS[:2]), by_task(PAIRS, by="target")):
        with pytest.raises(
            ValueError, match=r"train\.initialize_from=.*: its gates tell de:en, fr:en, en:de, en:fr ap"
        ):
            check_tasks(str(directory), other)
    with pytest.raises(ValueError, match="num_experts"):
        check_fit("it", directory, small(moe=MoEConfig(num_experts=8, expert_dim=16, gate=TaskConfig())), shared=False)
