"""Mesh-TensorFlow's costs and rules (arXiv:1811.02084, Table 1, sections 5, 8, 9), and GShard's Table 4 of einsums
(arXiv:2006.16668). test_published_recipes.py has the parameters of the models."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from pipeline.batch.config import GroupShape
from pipeline.config import ROOT
from pipeline.model.config import ModelConfig, MoEConfig
from pipeline.parallel.layout import Layout
from pipeline.plan.collectives import engine_collectives, model_collectives
from pipeline.plan.devices import load_device
from pipeline.plan.shapes import shapes
from pipeline.plan.workload import Collective, Setup, Workload
from tests.golden.einsum_rule import Cost, cost

# y = relu(x w) v. B batch, D io, H hidden. Biases and the relu have a lower order (section 8.6).
TWO_LAYERS = ["x_BD,w_DH->h_BH", "h_BH,v_HD->y_BD"]
SIZES = [
    {"B": 96, "D": 24, "H": 48},
    {"B": 1200, "D": 720, "H": 240},
    {"B": 48, "D": 4800, "H": 24000},
]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of Table 1. r, c, p: numbers of parts into which batch, hidden and io are cut."""

    layout: Mapping[str, str]
    mesh: Mapping[str, int]
    r: int = 1
    c: int = 1
    p: int = 1


N, R, C, P = 12, 4, 3, 2
TABLE_1 = {
    "none": Row(layout={}, mesh={"all": N}),
    "batch": Row(layout={"B": "all"}, mesh={"all": N}, r=N),
    "hidden": Row(layout={"H": "all"}, mesh={"all": N}, c=N),
    "batch, hidden": Row(layout={"B": "rows", "H": "cols"}, mesh={"rows": R, "cols": C}, r=R, c=C),
    "batch, hidden, io": Row(
        layout={"B": "rows", "H": "cols", "D": "planes"}, mesh={"rows": R, "cols": C, "planes": P}, r=R, c=C, p=P
    ),
}


def cost_of(row: Row, sizes: Mapping[str, int]) -> Cost:
    return cost(TWO_LAYERS, sizes=sizes, mesh=row.mesh, layout=row.layout)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("row", TABLE_1.values(), ids=TABLE_1)
def test_table_1(row: Row, sizes: Mapping[str, int]) -> None:
    """Costs are those of the table, which drops constant factors. They are the same in every row.

    There are six einsums: two forward, and two gradients of each. Two of them contract hidden, two io, two batch.
    Tensors x and y have size bd, h has bh, w and v have dh.
    """
    b, d, h = sizes["B"], sizes["D"], sizes["H"]
    row_cost = cost_of(row, sizes)
    assert row_cost.multiply_adds == 6 * b * d * h // (row.r * row.c * row.p)
    bd, bh, dh = b * d // (row.r * row.p), b * h // (row.r * row.c), d * h // (row.c * row.p)
    assert row_cost.all_reduced == 2 * (bd * (row.c > 1) + bh * (row.p > 1) + dh * (row.r > 1))
    assert row_cost.memory == 2 * bd + 1 * bh + 2 * dh


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_communication_over_computation(sizes: Mapping[str, int]) -> None:
    """The column of Table 1 is 0, n/b, n/h, c/h + r/b, c/h + p/d + r/b. Ours is 2 / 6 of it in every row."""
    b, d, h = (Fraction(sizes[letter]) for letter in "BDH")
    printed = [Fraction(0), N / b, N / h, C / h + R / b, C / h + P / d + R / b]
    costs = [cost_of(row, sizes) for row in TABLE_1.values()]
    assert [3 * Fraction(row.all_reduced, row.multiply_adds) for row in costs] == printed


@pytest.mark.parametrize(
    ("layout", "error"),
    [
        ({"B": "all", "H": "all"}, "B and H of h_BH are both cut over the axis all"),  # section 8.5
        ({"H": "cols"}, "layout.H: there is no axis cols; the mesh has all"),
        ({"D": "all"}, "layout.D=all: 20 does not divide by 12"),  # section 5
    ],
)
def test_illegal_layouts(layout: Mapping[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        cost(TWO_LAYERS, sizes={"B": 24, "D": 20, "H": 36}, mesh={"all": 12}, layout=layout)


def test_what_is_no_einsum_of_named_tensors() -> None:
    with pytest.raises(ValueError, match="write x_BD,w_DH->h_BH"):
        cost(["BD,DH->BH"], sizes={"B": 2, "D": 2, "H": 2}, mesh={}, layout={})


# Expensive einsums of a Transformer layer (section 9). S, T positions, N heads, K of a head, F hidden, V vocabulary.
TRANSFORMER = [
    "x_BSD,wq_DNK->q_BSNK",
    "x_BSD,wk_DNK->k_BSNK",
    "x_BSD,wv_DNK->v_BSNK",
    "q_BSNK,k_BTNK->scores_BNST",
    "scores_BNST,v_BTNK->a_BSNK",
    "a_BSNK,wo_NKD->y_BSD",
    "y_BSD,wi_DF->h_BSF",
    "h_BSF,wo_FD->z_BSD",
    "z_BSD,embedding_DV->logits_BSV",
]
WIDTHS = {"B": 8, "S": 16, "T": 16, "D": 32, "N": 4, "K": 8, "F": 64, "V": 128}


def test_the_model_parallel_transformer_replicates_no_einsum() -> None:
    """Section 9: every expensive operation has exactly one dimension that is cut, and no tensor has more than one."""
    layout = dict.fromkeys("NFV", "all")
    whole = cost(TRANSFORMER, sizes=WIDTHS, mesh={"all": 1}, layout=layout)
    cut = cost(TRANSFORMER, sizes=WIDTHS, mesh={"all": 4}, layout=layout)
    assert cut.multiply_adds * 4 == whole.multiply_adds
    assert whole.all_reduced == 0 < cut.all_reduced
    without_heads = cost(TRANSFORMER, sizes=WIDTHS, mesh={"all": 4}, layout={"F": "all", "V": "all"})
    assert without_heads.multiply_adds * 4 > whole.multiply_adds  # section 8.4: correct, and work is replicated


@pytest.mark.parametrize("cols", [2, 8])
@pytest.mark.parametrize("rows", [2, 8])
def test_cost_of_a_processor_is_constant_where_dimensions_grow_with_the_mesh(rows: int, cols: int) -> None:
    """Section 9: batch grows with the rows, and heads, hidden units and vocabulary with the columns."""
    grown = {**WIDTHS, "B": 8 * rows, **{letter: WIDTHS[letter] * cols for letter in "NFV"}}
    layout = {"B": "rows", "N": "cols", "F": "cols", "V": "cols"}
    grown_cost = cost(TRANSFORMER, sizes=grown, mesh={"rows": rows, "cols": cols}, layout=layout)
    smallest = {**WIDTHS, "B": 16, **{letter: WIDTHS[letter] * 2 for letter in "NFV"}}
    assert grown_cost == cost(TRANSFORMER, sizes=smallest, mesh={"rows": 2, "cols": 2}, layout=layout)


@pytest.mark.parametrize(
    ("einsum", "layout", "all_reduced"),
    [
        ("x_AB,w_BC->y_AC", "B", True),
        ("x_AB,w_BC->y_AC", "A", False),
        ("x_AB->y_A", "A", False),
        ("x_AB->y_B", "A", True),
    ],
)
def test_rows_of_gshards_table_4(einsum: str, layout: str, all_reduced: bool) -> None:
    """The cut dimension grows with the D partitions. Computation of a partition stays O(1), as does the all-reduce."""
    sizes = {"A": 12, "B": 12, "C": 12}
    costs = [
        cost([einsum], sizes={**sizes, layout: 12 * D}, mesh={"all": D}, layout={layout: "all"}, gradients=False)
        for D in (2, 32)
    ]
    assert costs[0] == costs[1]
    assert bool(costs[0].all_reduced) == all_reduced


@pytest.mark.parametrize("letters", ["AB", "AC"])
def test_what_gshard_gathers_mesh_tensorflow_refuses(letters: str) -> None:
    """Two matmuls of Table 4 cost O(D), because two dimensions of one tensor are cut over the same partitions."""
    sizes = {"A": 12, "B": 12, "C": 12}
    with pytest.raises(ValueError, match=f"{letters[0]} and {letters[1]} of ._{letters} are both cut"):
        cost(["x_AB,w_BC->y_AC"], sizes=sizes, mesh={"all": 4}, layout=dict.fromkeys(letters, "all"))


# Products with weights of our dense model. A counts queries, keys and values, C keys and values only. All products of
# one tensor are one einsum, because our gradients to it are summed before they are sent.
FEED_FORWARD = ["x_B{}M,wi_MH->h_B{}H", "h_B{}H,wo_HM->y_B{}M"]
SELF_ATTENTION = ["x_B{}M,qkv_AMND->heads_AB{}ND", "mixed_B{}ND,wo_NDM->y_B{}M"]
CROSS_ATTENTION = ["x_BTM,wq_MND->q_BTND", "memory_BSM,kv_CMND->heads_CBSND", "mixed_BTND,wo_NDM->y_BTM"]
ENCODER = [line.replace("{}", "S") for line in SELF_ATTENTION + FEED_FORWARD]
DECODER = [line.replace("{}", "T") for line in SELF_ATTENTION + FEED_FORWARD] + CROSS_ATTENTION
OURS = ENCODER * 2 + DECODER * 3
OUR_SIZES = {"A": 3, "C": 2, "B": 4, "S": 24, "T": 16, "M": 32, "N": 4, "D": 8, "H": 64}
WORKLOAD = Workload(
    recipe="dense",
    model=ModelConfig(
        dim=32, ffn_dim=64, heads=4, head_dim=8, encoder_layers=2, decoder_layers=3, dropout=0.1, moe=MoEConfig()
    ),
    source_vocabulary=96,
    target_vocabulary=64,
    shared=False,
    shape=GroupShape(rows=4, source=24, target=16),
    groups_per_step=4,
    precision="fp32",
    optimizer="adamw",
    ema=False,
    max_tokens=0,
)


def all_reduced(collectives: list[Collective], part: str = "") -> int:
    sums = [item for item in collectives if item.kind == "all_reduce" and item.part.startswith(part)]
    return sum(item.bytes // 4 for item in sums)


def test_our_model_parallelism_sends_what_the_rule_says() -> None:
    layout = Layout(
        table={"G": ("data",), "N": ("model",), "H": ("model",)}, sizes={"data": 1, "expert": 1, "model": 4}
    )
    one_group = replace(WORKLOAD, groups_per_step=1)
    collectives = model_collectives(one_group, Setup(layout=layout, zero_stage=1, recompute="none"))
    rule = cost(OURS, sizes=OUR_SIZES, mesh={"model": 4}, layout={"N": "model", "H": "model"})
    assert all_reduced(collectives) == rule.all_reduced > 0


def test_our_data_parallelism_sends_what_the_rule_says() -> None:
    """Data parallelism sends gradients of weights in einsums, and those of embeddings and norms."""
    setup = Setup(layout=Layout.gshard(4, 1), zero_stage=1, recompute="none")
    rule = cost(OURS, sizes=OUR_SIZES, mesh={"data": 4}, layout={"B": "data"})
    outside_einsums = sum(
        shape.elements for shape in shapes(WORKLOAD) if len(shape.sizes) == 1 or shape.letters == "VM"
    )
    assert all_reduced(engine_collectives(WORKLOAD, setup), "gradients") == rule.all_reduced + outside_einsums


def where_it_pays() -> list[str]:
    """Return the rows of the table in docs/scaling.md, in bfloat16.

    The first figure is the hidden units of a device for which the all-reduces of a dense network take as long as its
    products (rings in a node). The others are the time of the all-to-all of experts of 8192 over that of products.
    """
    sizes = {"B": 1024, "D": 1024, "H": 8192}
    rule = cost(TWO_LAYERS, sizes=sizes, mesh={"model": 2}, layout={"H": "model"})
    lines = []
    for name in ("a100", "h100", "b200"):
        device = load_device(name)
        products = rule.multiply_adds * 2 / device.flops["bf16"]
        hidden = rule.all_reduced * 2 * 2 / device.link / products * sizes["H"] / 2
        rows = 2 * sizes["B"] * sizes["D"]  # two experts of a token
        exchanges, experts = 4 * rows * 2, 6 * rows * sizes["H"] * 2
        inside, outside = (
            exchanges / rate / (experts / device.flops["bf16"]) for rate in (device.link, device.network)
        )
        lines.append(f"| {name} | {hidden:,.0f} | {inside:.2f} | {outside:.1f} |")
    return lines


def test_the_docs_have_these_figures() -> None:
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    missing = [line for line in where_it_pays() if line not in text]
    assert not missing, "docs/scaling.md lacks\n" + "\n".join(missing)
