"""Tiers and candidates of the bilingual baselines: what they inherit, and which mistakes are named."""

import pytest

from pipeline.baseline_config import BaselinesConfig, budget_cautions, complete
from pipeline.config import compose_tree, load_config
from pipeline.dag.run import baselines_run
from pipeline.schema import build

SEARCH = "baselines.search={pairs: 2, candidates: [%s]}"
FREESOFT38 = ["recipes=freesoft38/dense", "corpus.path=somewhere"]


@pytest.fixture(scope="module")
def smoke():
    return compose_tree("config", ["recipes=smoke"])


def test_a_candidate_is_the_tier_with_its_settings():
    config = load_config(
        [
            "recipes=demo",
            SEARCH
            % "{name: wide, model: {ffn_dim: 640}, train: {schedule: {kind: cosine, floor: 1e-5}, max_steps: 999}}",
        ]
    )
    search = config.baselines.search
    assert search is not None
    for tier in config.baselines.tiers:
        wide = search.candidate("wide").applied_to(tier)
        assert (wide.model.ffn_dim, wide.model.dropout) == (640, tier.model.dropout)
        assert (wide.train.schedule.kind, wide.train.max_tokens) == ("cosine", tier.train.max_tokens)
        assert (wide.up_to, wide.vocab, wide.batch) == (tier.up_to, tier.vocab, tier.batch)
        assert wide.model.moe.num_experts == 0


def test_a_candidate_without_settings_is_the_tier():
    config = load_config(["recipes=smoke", SEARCH % "{name: as_it_is}"])
    assert load_config(["recipes=smoke"]).baselines.search is None
    assert [
        config.baselines.search.candidates[0].applied_to(tier) for tier in config.baselines.tiers
    ] == config.baselines.tiers


def test_a_tier_has_no_augmentation_but_its_own():
    tiers = "baselines.tiers=[{%sup_to: 0}]"
    augment = "+batch.augment={typos: 0.1, upper: 0.1}"
    for own, shares in (("", {}), ("batch: {augment: {emoji: 0.2}}, ", {"emoji": 0.2})):
        config = load_config(["recipes=smoke", augment, tiers % own])
        assert config.batch.augment == {"typos": 0.1, "upper": 0.1}
        assert [tier.batch.augment for tier in config.baselines.tiers] == [shares]


def test_without_tiers_there_is_no_search():
    baselines = load_config([*FREESOFT38, "baselines.tiers=[]"]).baselines
    assert (baselines.tiers, baselines.search) == ([], None)


def test_baselines_alone_need_tiers():
    with pytest.raises(ValueError, match=r"baselines.tiers is empty.*choose baselines=tiered"):
        baselines_run(load_config(["recipes=smoke", "baselines.tiers=[]"]))


def test_all_runs_of_the_experiment_share_their_baselines():
    config = load_config([*FREESOFT38, "train.max_tokens=2000000"])
    assert {tier.train.max_tokens for tier in config.baselines.tiers} == {2_000_000}
    for change in (
        ["recipes=freesoft38/moe_8e_12l", "train.seed=2"],
        ["recipes=freesoft38/moe_32e", "train.learning_rate=1e-4", "train.validate_every=7", "model.dropout=0.2"],
    ):
        other = load_config([*FREESOFT38, *change, "train.max_tokens=2000000"])
        assert other.baselines == config.baselines
    full = load_config(FREESOFT38)
    assert {tier.train.max_tokens for tier in full.baselines.tiers} == {12_000_000}
    longest = (full.batch.max_source, full.batch.max_target)  # the same sentences are too long for all
    assert {(tier.batch.max_source, tier.batch.max_target) for tier in full.baselines.tiers} == {longest}


@pytest.mark.parametrize("recipe", ["demo", "mafand/multilingual", "multi30k/multilingual"])
def test_bilingual_models_train_on_sentences_as_long_as_those_of_the_run(recipe):
    config = load_config([f"recipes={recipe}"])
    longest = (config.batch.max_source, config.batch.max_target)
    assert {(tier.batch.max_source, tier.batch.max_target) for tier in config.baselines.tiers} == {longest}


def searching(*candidates, pairs=2):
    return {"search": {"pairs": pairs, "candidates": list(candidates)}}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (searching({"name": "a"}, {"name": "b"}, {"name": "a"}), r"candidates: a is named twice; give each its own"),
        (searching(), r"search\.candidates: \[\] must name at least one; or set baselines.search=null"),
        (searching({"name": ""}), r"search\.candidates: \[''\] must name"),
        (searching({"model": {"dim": 64}}), r"search\.candidates\[0\]\.name is not set"),
        (
            searching({"name": "a", "vocab": {"source": 9}}),
            r"candidates: a\.vocab\.source does not exist; did you mean",
        ),
        (searching({"name": "a", "model": {"dimm": 64}}), r"candidates: a\.model\.dimm does not exist; did you mean"),
        (
            searching({"name": "a", "train": {"patience": "x"}}),
            r"candidates: a\.train\.patience='x' must be of type int",
        ),
        (searching({"name": "a", "modell": {}}), r"candidates\[0\]\.modell does not exist; did you mean model\?"),
        (
            searching({"name": "a"}, pairs=1),
            r"baselines\.search\.pairs=1 must be at least 2, .* set baselines.search=null",
        ),
        ({"search": {"candidates": [{"name": "a"}]}}, r"baselines\.search\.pairs is not set"),
        ({"search": 3}, r"baselines\.search=3 must be a mapping"),
        ({"interpolate": False, "tiers": [{"up_to": 0}, {"up_to": 0}]}, r"only the last tier may have up_to: 0"),
        ({"serach": None}, r"baselines\.serach does not exist; did you mean search\?"),
    ],
)
def test_mistakes_are_named_with_their_remedy(smoke, section, message):
    with pytest.raises(ValueError, match=message):
        build(BaselinesConfig, complete({**smoke, "baselines": {**smoke["baselines"], **section}}), "baselines")


def test_what_decoding_averages_must_be_kept_of_candidates_too():
    overrides = ["recipes=smoke", "decode.average=3", "train.checkpoints.last_n=3"]
    load_config(overrides)
    with pytest.raises(ValueError, match=r"set train.checkpoints.last_n=3 \(it is 2\)"):
        load_config([*overrides, SEARCH % "{name: a, train: {checkpoints: {last_n: 2}}}"])


def test_a_share_of_what_is_no_number_is_named_where_it_stands():
    with pytest.raises(ValueError, match=r"^train.max_tokens='many' must be of type int"):
        load_config([*FREESOFT38, "train.max_tokens=many"])


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (
            ["recipes=smoke", "train.max_tokens=2200000"],
            "warning: train.max_tokens=2200000 changes the budget of the run, but its bilingual models still end at "
            "220,000 target tokens, 0.1 times the run's budget (0.49 times before); so that they follow, give each of "
            "baselines.tiers a share: max_tokens: ${share:0.49,${train.max_tokens}}",
        ),
        (["recipes=smoke", "train={max_tokens: 1000000}"], "220,000 target tokens, 0.22 times the run's budget"),
        (["recipes=smoke", "train.max_tokens=450000"], ""),  # the recipe's own
        (["recipes=smoke", "train.max_steps=100"], ""),  # the tiers have it too, and the run's batch
        (["recipes=smoke", "train.max_tokens=2200000", "baselines=none", "baselines.tiers=[]"], ""),
        ([*FREESOFT38, "train.max_tokens=2000000"], ""),  # its tiers have shares
        (["recipes=smoke", "train.max_tokens=2200000", "baselines.tiers=[{up_to: 0, train: {max_tokens: 9000}}]"], ""),
        (
            [
                *("recipes=smoke", "train.max_tokens=2200000"),
                "baselines.tiers=[{up_to: 0, train: {max_tokens: '${share:0.1,${train.max_tokens}}'}}]",
            ],
            "",
        ),
    ],
)
def test_a_budget_that_the_baselines_do_not_follow_is_warned_of(overrides, warning, caplog):
    load_config(overrides)
    messages = [record.message for record in caplog.records if "bilingual models still end" in record.message]
    assert len(messages) == bool(warning)
    assert warning in "".join(messages)


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (
            ["recipes=demo", "train.max_steps=100"],
            "warning: train.max_steps=100 ends the bilingual models at 100 steps too, but their steps hold 0.4 "
            "times the target tokens of the run's steps; set train.max_tokens instead, or give each of "
            "baselines.tiers a share: max_steps: ${share:2.5,${train.max_steps}}",
        ),
        (["recipes=demo", "train={max_steps: 100}"], "hold 0.4 times the target tokens"),
        (["recipes=demo", "train.max_steps=100", "batch.groups_per_step=4"], "hold 0.2 times the target tokens"),
        ([*FREESOFT38, "train.max_steps=1000"], "hold 0.083 to 0.25 times the target tokens"),
        (["recipes=demo", "train.max_steps=0"], ""),  # the demo's own
        (["recipes=demo", "train.max_steps=100000"], ""),  # max_tokens comes first
        (["recipes=smoke", "train.max_steps=100"], ""),  # the run's batch
        (["recipes=smoke", "train.max_steps=100", "baselines=none", "baselines.tiers=[]"], ""),
    ],
)
def test_steps_that_the_baselines_inherit_with_a_smaller_batch_are_warned_of(overrides, warning, caplog):
    load_config(overrides)
    messages = [record.message for record in caplog.records if "ends the bilingual models" in record.message]
    assert len(messages) == bool(warning)
    assert warning in "".join(messages)


@pytest.mark.parametrize(
    ("tier", "is_warned_of"),
    [
        ({"batch": {"groups_per_step": 1}}, True),
        ({"batch": {"groups_per_step": 3}}, False),  # its steps hold more than those of the run
        ({"batch": {"groups_per_step": 1}, "train": {"max_steps": 200}}, False),  # it names its own, as by a share
    ],
)
def test_only_smaller_steps_that_a_tier_inherits_are_warned_of(smoke, tier, is_warned_of):
    tree = {**smoke, "train": {**smoke["train"], "max_steps": 100}, "baselines": {"tiers": [{"up_to": 0, **tier}]}}
    before = {**tree, "train": smoke["train"]}
    assert len(budget_cautions(tree, before)) == is_warned_of


POOR = "{up_to: 1000, vocab: {source_size: 2000, target_size: 1000}, model: {dropout: 0.4}, train: {max_tokens: 0}}"
RICH = "{up_to: 16000, vocab: {source_size: 4000, target_size: 1001}, model: {dropout: 0.2}, train: {max_tokens: 0}}"


def interpolating(*tiers):
    return [
        "recipes=demo",
        "train.max_tokens=0",
        "train.max_steps=9",
        "baselines.interpolate=true",
        f"baselines.tiers=[{','.join(tiers)}]",
    ]


def test_between_two_tiers_numbers_follow_the_logarithm_of_the_rows():
    baselines = load_config(interpolating(POOR, RICH)).baselines
    halfway = baselines.tier(4000)
    assert (halfway.vocab.source_size, halfway.model.dropout) == (3008, 0.3)  # 3,000 is no multiple of 16
    assert baselines.tier(2000).model.dropout == 0.35
    assert halfway.vocab.target_size in (1000, 1001)  # not both are multiples of 16
    assert (halfway.up_to, halfway.train.max_tokens) == (4000, 0)
    assert [baselines.tier(rows) for rows in (1, 1000, 16000, 10**9)] == [
        baselines.tiers[index] for index in (0, 0, 1, 1)
    ]


def test_a_single_tier_holds_for_all_pairs_with_and_without_interpolation():
    baselines = load_config(interpolating("{up_to: 5000}")).baselines
    assert baselines.tier(1) == baselines.tier(10**6) == baselines.tiers[0]


@pytest.mark.parametrize(
    ("tiers", "message"),
    [
        ((RICH, POOR), r"tiers: up_to is \[16000, 1000\]; .* must rise from 1 or more.* baselines.interpolate=false"),
        ((POOR, "{up_to: 0}"), r"tiers: up_to is \[1000, 0\]"),
        (
            (POOR.replace("max_tokens: 0", "max_tokens: 9"), RICH),
            r"tiers\[0\.\.1\]\.train\.max_tokens: there is no value between 9 and 0; give both tiers the same",
        ),
        ((POOR, "{up_to: 9000, train: {optimizer: adafactor}}"), r"train.optimizer: there is no value between 'adamw'"),
        (
            (POOR, "{up_to: 9000, batch: {shapes: [{rows: 9, source: 90, target: 80}]}}"),
            r"batch.shapes: there is no value between",
        ),
    ],
)
def test_tiers_with_nothing_between_them_are_refused(tiers, message):
    with pytest.raises(ValueError, match=message):
        load_config(interpolating(*tiers))
