"""Layouts: the dimensions that they cut, the work that processes repeat, and errors."""

import pytest

from pipeline.parallel.layout import GSHARD, TENSORS, Layout

MODEL = {**GSHARD, "H": ("model",), "N": ("model",), "V": ("model",)}


def layout(table, data=2, expert=2, model=2):
    return Layout(table=table, sizes={"data": data, "expert": expert, "model": model})


@pytest.mark.parametrize(
    ("letters", "cut"),
    [
        ("GSM", {"data": 0, "expert": 0}),
        ("EGCM", {"expert": 0, "data": 1}),  # G gives the axis of experts up where there is an E
        ("EGCH", {"expert": 0, "data": 1, "model": 3}),
        ("GSND", {"data": 0, "expert": 0, "model": 2}),
        ("EMH", {"expert": 0, "model": 2}),
        ("MND", {"model": 1}),
        ("VM", {"model": 0}),
        ("M", {}),
    ],
)
def test_each_axis_cuts_one_dimension(letters, cut):
    assert layout(MODEL).cut(letters) == cut


def test_gshard_hands_tokens_over_where_experts_take_an_axis_from_groups():
    assert layout(GSHARD).handed_over
    assert not layout({**GSHARD, "G": ("data",)}).handed_over  # processes of the axis have the same tokens
    assert not layout({**GSHARD, "E": ("model",)}).handed_over
    assert not layout(GSHARD, expert=1).handed_over
    assert layout({"G": ("data",), "E": ("data",)}).handed_over


def test_groups_are_dealt_over_the_axes_of_g_alone():
    for table, batch, copies in (
        (GSHARD, ("data", "expert"), ("model",)),
        ({"G": ("expert", "data")}, ("data", "expert"), ("model",)),
        ({"G": ("data",)}, ("data",), ("expert", "model")),
        ({"G": ("data", "expert", "model")}, ("data", "expert", "model"), ()),
        ({}, (), ("data", "expert", "model")),
    ):
        assert (layout(table).batch_axes, layout(table).copy_axes) == (batch, copies)


def test_an_axis_of_one_process_cuts_nothing():
    one = layout(MODEL, model=1)
    assert [one.axis(letter) for letter in "EHNV"] == ["expert", None, None, None]
    assert one.parts(("model",)) == 1


@pytest.mark.parametrize(
    ("table", "letters", "times"),
    [
        (GSHARD, "GSND", 2),
        (GSHARD, "EGCH", 2),
        (MODEL, "GSND", 1),
        (MODEL, "EGCH", 1),
        (MODEL, "GS", 2),  # the router
        ({**MODEL, "G": ("data",)}, "GSND", 2),
        ({**MODEL, "G": ("data",)}, "EGCH", 1),
        ({**GSHARD, "G": ("data", "expert", "model")}, "GSND", 1),
        ({}, "GSND", 8),
    ],
)
def test_what_is_not_cut_is_computed_by_every_process_of_an_axis(table, letters, times):
    assert layout(table).replication(letters) == times


def test_a_layout_of_gshard_has_the_world_that_it_is_given():
    gshard = Layout.gshard(8, 4)
    assert (gshard.world, dict(gshard.sizes)) == (8, {"data": 2, "expert": 4, "model": 1})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({**GSHARD, "H": ("expert",)}, "G and H of hidden_GSH are both cut over the axis expert; give one of them"),
        ({**GSHARD, "E": ("model",), "H": ("model",)}, "E and H of hidden_EGCH are both cut over the axis model"),
        ({**MODEL, "G": ("model",)}, "G and N of heads_GSND are both cut over the axis model"),
        ({"V": ("data",), "G": ("data",)}, "G and V of logits_GSV are both cut over the axis data"),
        ({"H": ("modle",)}, r"layout.H: there is no axis modle; did you mean model\?"),
        ({"H": ("data", "model")}, r"layout.H=\[data, model\]: G alone may be cut over several axes"),
        ({"G": ("data", "data")}, r"layout.G=\[data, data\] names an axis twice"),
        ({"M": ("model",)}, r"layout.M: no layout cuts M \(.*\); there are G, E, H, N, V"),
        ({"h": ("model",)}, r"layout.h: there is no such letter; did you mean H \(hidden units\)\?"),
        ({"heads": ("model",)}, r"did you mean N \(heads\)\?"),
        (
            {"X": ("model",)},
            r"there are G \(groups\), E \(experts\), H \(hidden units\), N \(heads\), V \(vocabulary\)",
        ),
    ],
)
def test_what_a_layout_may_not_say(table, message):
    with pytest.raises(ValueError, match=message):
        layout(table)


def test_two_letters_share_an_axis_where_no_tensor_has_both():
    """These are the letters that GShard's and Mesh-TensorFlow's layouts cut."""
    for letters in TENSORS.values():
        assert len(layout(MODEL).cut(letters)) <= 3
    assert layout({**GSHARD, "E": ("model",), "N": ("model",), "V": ("model",)}).cut("EGCM")["model"] == 0
