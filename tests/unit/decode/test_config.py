"""Settings of decoding: errors name the remedy, and a stage's key has the settings that matter."""

from dataclasses import fields, replace

import pytest

from eval.records.decisive import SPEED_ONLY
from pipeline.commands.keys import meaning
from pipeline.config import load_config
from pipeline.decode.config import DECODE_UNSET, SAMPLING_DEFAULTS, DecodeConfig, with_neutral

PLAIN = DecodeConfig(beam=4, length_penalty=1.0)
MISTAKES = [
    ({"search": "bean"}, "search='bean' is not one of beam, sample"),
    ({"beam": 0}, "beam=0 must be at least 1"),
    ({"n_best": 0}, "n_best=0 must be at least 1"),
    ({"n_best": 5}, "n_best=5 hypotheses need decode.beam=5 or more"),
    ({"length_penalty": -0.1}, "length_penalty=-0.1 must not be negative"),
    ({"length_penalty": float("nan")}, "length_penalty=nan must be a finite number"),
    ({"length_norm": "wu"}, "length_norm='wu' is not one of gnmt, power"),
    ({"coverage_penalty": -1.0}, "coverage_penalty=-1.0 must not be negative"),
    ({"max_length_ratio": -1.0}, "max_length_ratio=-1.0 must not be negative"),
    ({"max_length_extra": 0}, "max_length_extra=0 must be at least 1"),
    ({"min_length": -1}, "min_length=-1 must not be negative"),
    ({"max_length_ratio": 0.0, "min_length": 16}, "min_length=16 leaves no room for </s> within .*extra=16; lower"),
    ({"no_repeat_ngram": -1}, "no_repeat_ngram=-1 must not be negative"),
    (
        {"search": "sample", "temperature": 0.0},
        "temperature=0.0 must be at least 0.001; for the likeliest token take decode.top_k=1",
    ),
    ({"search": "sample", "temperature": 1e-45}, "temperature=1e-45 must be at least 0.001"),
    ({"temperature": 0.5}, "temperature=0.5 is of sampling; set decode.search=sample, or leave it 1.0"),
    ({"search": "sample", "top_k": -1}, "top_k=-1 must not be negative"),
    ({"top_k": 5}, "top_k=5 is of sampling; set decode.search=sample, or leave it 0"),
    ({"search": "sample", "top_p": 0.0}, r"top_p=0.0 must lie in \(0, 1\]; 1 keeps all tokens"),
    ({"search": "sample", "top_p": 1.5}, r"top_p=1.5 must lie in \(0, 1\]"),
    ({"top_p": 0.9}, "top_p=0.9 is of sampling"),
    ({"seed": -1}, "seed=-1 must not be negative"),
    ({"seed": 1 << 63}, r"seed=9223372036854775808 must be below 2\^63"),
    ({"precision": "fp16"}, "precision='fp16' is not one of fp32, bf16, fp64, int8"),
    ({"capacity_factor": -1.0}, "capacity_factor=-1.0 must not be negative"),
    ({"batch_tokens": 0}, "batch_tokens=0 must be at least 1"),
    ({"beam_memory": "flat"}, "beam_memory='flat' is not one of flattened, reordered"),
    ({"average": 0}, "average=0 must be at least 1"),
    ({"average_of": "first"}, "average_of='first' is not one of last, best"),
    ({"draws": 8}, "draws=8 is of sampling; set decode.search=sample, or leave it 0"),
    ({"search": "sample", "draws": 2, "n_best": 3}, "draws=2 gives no n_best=3; set decode.draws=3"),
    ({"choose": "best"}, "choose='best' is not one of likeliest, mbr"),
    (
        {"choose": "mbr", "beam": 1},
        "choose=mbr compares translations .*; set decode.beam=8 or more, or decode.choose=likeliest",
    ),
    (
        {"choose": "mbr", "search": "sample"},
        "choose=mbr compares translations .*; set decode.draws=32, or decode.choose=likeliest",
    ),
    ({"utility": "ter", "choose": "mbr"}, r"utility='ter' is not one of chrf, chrf\+\+, bleu"),
    ({"utility": "bleu"}, "utility=bleu is of decode.choose=mbr; set that, or leave it chrf"),
    ({"ensemble": ("a", "b", "a")}, r"ensemble=\['a', 'b', 'a'\] names a run twice; name each once"),
    ({"combine": "mean", "ensemble": ("a",)}, "combine='mean' is not one of linear, log_linear, weights"),
    ({"combine": "weights"}, "combine=weights is of decode.ensemble; name its runs, or leave it linear"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes_are_named_with_their_remedy(changes, message):
    with pytest.raises(ValueError, match=f"decode.{message}"):
        replace(PLAIN, **changes)


def test_settings_that_a_change_leaves_without_effect_become_neutral():
    assert with_neutral({"choose": "likeliest"}) == {"choose": "likeliest", "utility": "chrf"}
    assert with_neutral({"ensemble": []}) == {"ensemble": [], "combine": "linear"}
    assert with_neutral({"search": "beam"}) == {"search": "beam", **SAMPLING_DEFAULTS}
    for changes in ({"choose": "mbr"}, {"ensemble": ["a"]}, {"search": "sample"}, {"beam": 2}):
        assert with_neutral(changes) == changes
    contradiction = {"choose": "likeliest", "utility": "bleu"}
    assert with_neutral(contradiction) == contradiction


def test_the_page_of_settings_has_every_meaning_to_its_end():
    text = " ".join((DecodeConfig.__doc__ or "").split())
    meanings = [meaning(DecodeConfig, field.name) for field in fields(DecodeConfig)]
    assert [words for words in meanings if f"{words}." not in text] == []


def test_every_field_has_a_mistake():
    assert {name for changes, _ in MISTAKES for name in changes} == {field.name for field in fields(DecodeConfig)}


def test_a_sample_needs_no_beam():
    assert replace(PLAIN, search="sample", n_best=9).hypotheses == 9
    assert PLAIN.hypotheses == 4


def test_more_may_be_drawn_than_are_returned_and_all_take_part_in_a_choice():
    drawn = replace(PLAIN, search="sample", n_best=2, draws=9)
    assert (drawn.hypotheses, drawn.candidates) == (9, 2)
    assert replace(drawn, choose="mbr").candidates == 9
    assert (PLAIN.candidates, replace(PLAIN, choose="mbr").candidates) == (1, 4)


def test_a_key_has_what_changes_translations():
    """With a capacity, batches change translations. In 16 and 8 bits, all that changes the rounding of sums does."""
    names = {field.name for field in fields(DecodeConfig)} - DECODE_UNSET.keys()
    assert PLAIN.decisive().keys() == names - set(SPEED_ONLY)
    assert replace(PLAIN, capacity_factor=1.0).decisive().keys() == names - {"beam_memory"}
    assert replace(PLAIN, precision="fp64").decisive().keys() == names - set(SPEED_ONLY)
    for precision in ("bf16", "int8"):
        assert replace(PLAIN, precision=precision).decisive().keys() == names


def test_a_key_has_settings_that_are_off_by_default_only_where_they_are_on():
    """The models of an ensemble are inputs of a stage, so their names are in no key."""
    base = PLAIN.decisive().keys()
    assert replace(PLAIN, choose="mbr").decisive().keys() - base == {"choose"}
    assert replace(PLAIN, choose="mbr", utility="bleu").decisive().keys() - base == {"choose", "utility"}
    assert replace(PLAIN, search="sample", draws=4).decisive().keys() - base == {"draws"}
    together = replace(PLAIN, ensemble=("a",), combine="weights")
    assert together.decisive() == PLAIN.decisive()
    assert together.decisive(with_ensemble=True).keys() - base == {"combine"}
    assert replace(together, combine="linear").decisive(with_ensemble=True) == PLAIN.decisive()


def test_records_have_them_only_where_they_are_on():
    assert load_config([]).to_json()["decode"].keys() == PLAIN.decisive().keys() | set(SPEED_ONLY)
    words = ["decode.beam=8", "decode.choose=mbr", "decode.ensemble=[a,b]", "decode.combine=weights"]
    record = load_config(words).to_json()["decode"]
    assert {name: record[name] for name in DECODE_UNSET if name in record} == {
        "choose": "mbr",
        "ensemble": ("a", "b"),
        "combine": "weights",
    }


@pytest.mark.parametrize("gate", ["dropless", "balanced"])
def test_a_capacity_where_no_token_queues_is_refused_before_a_run(gate):
    with pytest.raises(ValueError, match=rf"decode.capacity_factor=1.0: .* model.moe.gate={gate}, .* set it to 0"):
        load_config([f"gate={gate}", "decode.capacity_factor=1"])
