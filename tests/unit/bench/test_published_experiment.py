"""The tables of docs/experiment.md are made from the rows of the CSVs beside its recipes."""

import io
import json
import tarfile

from bench.published import experiment
from bench.published.experts import experts


def test_the_best_rate_of_each_system_is_bold_and_a_rate_that_was_not_tried_is_empty(tmp_path):
    rows = ["recipe,learning_rate,validation_loss,bleu", "freesoft38_dense,0.003,4.3142,1.6262"]
    rows += ["freesoft38_dense,0.006,4.2984,1.1312", "freesoft38_dense_12l,0.002,4.5,1.276"]
    (tmp_path / "rates.csv").write_text("\n".join(rows) + "\n")
    assert experiment.rates(tmp_path) == (
        "| system | 0.002 | 0.003 | 0.006 | rows |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| `dense` |  | 4.314 (1.63) | **4.298** (1.13) | rates:2,3 |\n"
        "| `dense_12l` | **4.500** (1.28) |  |  | rates:4 |\n"
    )


def test_a_system_of_one_seed_has_one_line(tmp_path):
    header = "system,parameters,bleu,chrf++,training_loss,validation_loss,experts_per_token,drop_rate"
    for name, system in (("systems", "moe_32e"), ("runs", "moe_32e_s3")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\n{system},16600000,9,30,3.1,2.8,1.5,0.086\n")
    (line,) = experiment.systems(tmp_path).splitlines()[2:]
    assert line == "| `moe_32e` | 3 | 16.6 M | 9.00 | 30.00 | 3.100 | 2.800 | 1.50 | 8.6 % | runs:2 |"


def test_bilingual_models_have_no_cost_a_token(tmp_path):
    rows = ["system,num_seeds,parameters,flops_per_token,tokens,tokens_per_second,planned_tokens_per_second"]
    rows[0] += ",memory_gib,train_hours,training_loss,experts_per_token,drop_rate,validation_loss,bleu,chrf++"
    rows += ["moe_8e,2,7711104,34466734,1.2e+07,2700.4,5497.9,1.31,1.2,3.4567,1.456,0.0365,3.1234,10.126,31"]
    rows += ["bilingual,1,187900000,,8e+07,4000,,,6.25,,,,,9,30.5"]
    (tmp_path / "systems.csv").write_text("\n".join(rows) + "\n")
    of_seed = rows[1].replace(",2,", ",1,", 1)
    runs = [rows[0], *(of_seed.replace("moe_8e", f"moe_8e_s{seed}") for seed in (1, 2)), rows[2]]
    (tmp_path / "runs.csv").write_text("\n".join(runs) + "\n")
    _, _, sparse, *of_seeds, bilingual = experiment.systems(tmp_path).splitlines()
    numbers = "7.71 M | 10.13 | 31.00 | 3.457 | 3.123 | 1.46 | 3.6 %"
    assert sparse == f"| `moe_8e` | mean | {numbers} | systems:2 |"
    assert of_seeds == [f"| `moe_8e` | 1 | {numbers} | runs:2 |", f"| `moe_8e` | 2 | {numbers} | runs:3 |"]
    assert bilingual == "| `bilingual` |  | 188 M | 9.00 | 30.50 |  |  |  |  | systems:3 |"
    _, _, sparse, bilingual = experiment.costs(tmp_path).splitlines()
    assert sparse == "| `moe_8e` | 34.5 M | 12.0 M | 1.20 | 2,700 | 5,498 | 1.3 | systems:2 |"
    assert bilingual == "| `bilingual` |  | 80.0 M | 6.25 | 4,000 |  |  | systems:3 |"


def test_a_pair_has_its_gains_and_a_mark_where_its_bilingual_model_still_improved(tmp_path):
    rows = ["pair,train_pairs,num_sentences,bilingual,improving,system,score,gain,ci_low,ci_high"]
    rows += ["ca-en,32994,677,44.12,1,dense,24.6,-19.5,-21,-18.1", "ca-en,32994,677,44.12,1,moe_8e,23.5,-20.6,-22,-19"]
    rows += ["lv-en,3751,265,3.86,0,dense,5.2,1.36,0.6,2.1", "lv-en,3751,265,3.86,0,moe_8e,4.8,0.94,0.2,1.7"]
    (tmp_path / "gains.csv").write_text("\n".join(rows) + "\n")
    assert experiment.gains(tmp_path) == (
        "| pair | training pairs | sentences | `bilingual` | `dense` | `moe_8e` | rows |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| ca-en | 32,994 | 677 | 44.1† | 24.6 (−19.5 [−21.0, −18.1]) | 23.5 (−20.6 [−22.0, −19.0]) | gains:2,3 |\n"
        "| lv-en | 3,751 | 265 | 3.9 | 5.2 (+1.4 [+0.6, +2.1]) | 4.8 (+0.9 [+0.2, +1.7]) | gains:4,5 |\n"
    )


def test_a_changed_part_of_the_mixture_has_its_difference_and_the_recipe_has_none(tmp_path):
    rows = ["point,settings,seed,validation,bleu,bleu_delta,ci_low,ci_high,load_max,experts_per_token,drop_rate"]
    rows += [f"8e,gate=top2,{seed},3.1,5.25,{delta},1.5,1.48,0.031" for seed, delta in (("mean", "0,,"), (1, ",,"))]
    rows += [
        f"8e_all,gate.second=all,{seed},3.05,5,{delta},1.25,2,0.2"
        for seed, delta in (("mean", "-0.25,-0.5,0.125"), (1, ",,"))
    ]
    (tmp_path / "ablations.csv").write_text("\n".join(rows) + "\n")
    _, _, recipe, changed = experiment.ablations(tmp_path).splitlines()
    assert recipe == "| `gate=top2` | 1 | 3.100 | 5.25 |  | 1.48 | 3.1 % | 1.50 | ablations:2,3 |"
    assert changed == (
        "| `gate.second=all` | 1 | 3.050 | 5.00 | −0.25 [−0.50, +0.12] | 2.00 | 20.0 % | 1.25 | ablations:4,5 |"
    )


def test_tokens_have_their_share_of_those_of_the_first_system(tmp_path):
    rows = ["system,num_seeds,loss,tokens,share_of_first", "dense,2,4,3120000,1", "moe_8e,2,4,3090000,0.99"]
    rows += ["dense,2,2.85,11500000,1", "moe_8e,2,2.85,,"]
    (tmp_path / "tokens.csv").write_text("\n".join(rows) + "\n")
    assert experiment.tokens(tmp_path) == (
        "| system | seeds | 4 | 2.85 | rows |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| `dense` | 2 | 3.12 M | 11.5 M | tokens:2,4 |\n"
        "| `moe_8e` | 2 | 3.09 M (0.990) |  | tokens:3,5 |\n"
    )


def test_a_fit_has_its_intervals(tmp_path):
    columns = [f"{name}{ending}" for name in ("exponent", "later", "backtest") for ending in ("", "_low", "_high")]
    numbers = "0.7,0.65,0.75,2.23,2.21,2.25,2.8421,2.835,2.849"
    lines = [f"system,num_seeds,loss,{','.join(columns)}", f"dense,2,2.8278,{numbers}"]
    (tmp_path / "scaling.csv").write_text("\n".join(lines) + "\n")
    fit = "0.70 [0.65, 0.75] | 2.230 [2.210, 2.250] | 2.842 [2.835, 2.849]"
    assert experiment.scaling(tmp_path).splitlines()[2:] == [f"| `dense` | 2 | 2.828 | {fit} | scaling:2 |"]


def test_a_pair_has_the_losses_of_its_own_candidates(tmp_path):
    header = "pair,train_pairs,candidate,nats_per_character"
    for name, lines in (
        ("poor", ["ta-en,747,small_d3,1.25", "ta-en,747,small_d1,1.5"]),
        ("rich", ["fr-en,170532,small_d1,0.5", "fr-en,170532,base_d1,0.25"]),
    ):
        (tmp_path / f"freesoft38_search_{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    assert experiment.search(tmp_path) == (
        "| pair | training pairs | `small_d3` | `small_d1` | `base_d1` | rows |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| fr-en | 170,532 |  | 0.500 | **0.250** | search_rich:2,3 |\n"
        "| ta-en | 747 | **1.250** | 1.500 |  | search_poor:2,3 |\n"
    )


def test_the_zoo_has_every_system_and_the_speeds_that_were_measured(tmp_path):
    header = "system,parameters,bleu,chrf++,train_hours,memory_gib"
    rows = [header, "dense,7711104,10.126,31,1.265,1.3227", "bilingual,187900000,9,30.5,6.25,"]
    (tmp_path / "systems.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "release.csv").write_text(f"{header}\nrelease,6175872,15,36,1.5,2\n")
    rows = ["system,sentences_per_second,slowest,fastest", "moe_8e,40,39,41", "dense,51.656,48.56,57.018"]
    (tmp_path / "decoding.csv").write_text("\n".join(rows) + "\n")
    assert experiment.zoo(tmp_path).splitlines()[2:] == [
        "| `dense` | 7.71 M | 31 | 10.13 | 31.00 | 1.26 | 1.3 | 52 [49, 57] | systems:2 decoding:3 |",
        "| `bilingual` | 188 M | 752 | 9.00 | 30.50 | 6.25 |  |  | systems:3 |",
        "| `release` | 6.18 M | 25 | 15.00 | 36.00 | 1.50 | 2.0 |  | release:2 |",
    ]


def test_a_contrast_has_a_line_for_each_score_on_its_own_test_sets(tmp_path):
    header = "test_set,contrast,metric,resource,num_pairs,delta,ci_low,ci_high,num_seeds"
    for name, lines in (
        ("own", ["all,38,0.5,0.25,0.75,2", "high,13,-1,-2,0,2", '"multi-way, all",27,0.25,-0.5,1,2']),
        ("news", ["all,37,0.125,-0.5,0.75,2"]),
    ):
        rows = [f"{name},moe_8e - dense,{metric},{line}" for metric in ("bleu", "chrf++") for line in lines]
        (tmp_path / f"contrasts_{name}.csv").write_text("\n".join([header, *rows]) + "\n")
    own = "+0.50 [+0.25, +0.75] | −1.00 [−2.00, 0.00] |  | "
    assert experiment.contrasts(tmp_path).splitlines()[2:] == [
        f"| `moe_8e - dense` | BLEU | 38 | 2 | {own} | contrasts_own:2,3 |",
        "| `moe_8e - dense` | BLEU | 27 | 2 | +0.25 [−0.50, +1.00] |  |  |  | contrasts_own:4 |",
        f"| `moe_8e - dense` | chrF++ | 38 | 2 | {own} | contrasts_own:5,6 |",
        "| `moe_8e - dense` | chrF++ | 27 | 2 | +0.25 [−0.50, +1.00] |  |  |  | contrasts_own:7 |",
    ]


def test_pieces_are_code_whatever_they_hold(tmp_path):
    texts = [["▁un", "|"], ["`"]]
    layers = {"encoder.2": {"experts": [{"pieces": [{"text": text} for text in of_expert]} for of_expert in texts]}}
    content = json.dumps({"layers": layers}).encode()
    with tarfile.open(tmp_path / "run.tar.xz", "w:xz") as archive:
        member = tarfile.TarInfo("specialisation.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    assert experts(tmp_path / "run.tar.xz").splitlines() == [
        "| layer | expert | pieces |",
        "| --- | ---: | --- |",
        r"| `encoder.2` | 0 | `▁un` `\|` |",
        "| `encoder.2` | 1 | `` ` `` |",
    ]
