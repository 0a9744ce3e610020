"""The shapes of parameters as Adafactor reads them; tests/unit/engine/test_optimizer_kinds.py has their bytes."""

from pipeline.parallel.shapes import parameter_shapes
from tests.gates import moe_of
from tests.plans import model_of, setup_of


def test_a_layout_cuts_experts_but_no_rows_and_columns() -> None:
    """`Adafactor.allocate` also keeps whole rows and columns on every process."""
    layout = setup_of("model", expert=2, model=2).layout
    parameters = parameter_shapes(model_of(moe_of("top2")), source_vocabulary=48, target_vocabulary=64, shared=False)
    shapes = {shape.name.rpartition(".")[2]: shape for shape in parameters}
    assert shapes["wq_MND"].factors(layout) == shapes["wq_MND"].factors() == 16 + 16
    assert shapes["wi_EMH"].factors(layout) == 2 * (16 + 16)
    assert shapes["wi_EMH"].factors() == 4 * (16 + 16)
    assert shapes["weight"].factors(layout) == 0
