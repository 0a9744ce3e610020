"""docs/experiment.md: what it says of the trained models is in the rows of their CSVs and in their archives."""

import json
import re
from statistics import fmean

import pytest

from bench.experiment.__main__ import ARCHIVES
from bench.experiment.archive import read_archive
from bench.experiment.contrasts import PRIMARY
from eval.number_format import signed
from eval.records.scores import METRICS
from eval.score.macro import resource_classes
from pipeline.config import ROOT
from tests.experiment_tables import answers, contrast_rows, interval, losses_by_pair, rows_of, words_of

FLAT, ANSWERS = words_of("experiment"), answers()
THIRDS = ("high", "medium", "low")
DEEP = ("dense_12l", "moe_32e_12l")


def test_the_answers_on_mixtures_are_those_of_the_rows():
    first = contrast_rows("contrasts_own", "moe_8e - dense")
    texts = []
    for metric in ("bleu", "chrf++"):
        delta, span = interval(first[metric])
        texts.append(f"{delta} {METRICS[metric].title} {span}")
        assert float(first[metric]["ci_low"]) < 0 < float(first[metric]["ci_high"])
        assert first[metric]["num_seeds"] == "2"
    assert f"`moe_8e` − `dense` is {' and '.join(texts)}." in ANSWERS
    of_all = {name: contrast_rows("contrasts_own", "moe_8e - dense", name) for name in THIRDS}
    apart = [(name, m) for name, rows in of_all.items() for m in rows if float(rows[m]["ci_high"]) < 0]
    assert apart == [("medium", "chrf++")]
    delta, span = interval(of_all["medium"]["chrf++"])
    assert f"it is worse in the middle third in chrF++ ({delta} {span})" in FLAT
    thirds = [contrast_rows("contrasts_own", "moe_8e - dense", f"multi-way, {name}").values() for name in THIRDS]
    assert all(float(row["ci_low"]) < 0 < float(row["ci_high"]) for rows in thirds for row in rows)
    assert "Nor is it in any third of the 27 pairs with one test text" in ANSWERS
    second = contrast_rows("contrasts_own", "moe_32e - moe_8e")
    texts = [" chrF++ ".join(interval(second["chrf++"])), " BLEU ".join(interval(second["bleu"]))]
    assert f"Nothing so far: `moe_32e` − `moe_8e` is {texts[1]} and {texts[0]} with one seed, though" in ANSWERS
    moved = abs(float(first["bleu"]["seed_high"]) - float(first["bleu"]["seed_low"]))
    assert f"it changed `moe_8e` − `dense` by {moved:.2f} BLEU |" in ANSWERS


def test_the_text_on_the_models_is_that_of_their_rows():
    rows = {row["system"]: row for row in rows_of("systems")}
    seeds = {"dense": "2", "moe_8e": "2", "moe_32e": "1", "dense_12l": "1", "moe_32e_12l": "1"}
    assert {name: row["num_seeds"] for name, row in rows.items()} == seeds
    for name, row in rows.items():
        assert all(commit[:7] in FLAT for commit in row["commits"].split())
        assert row["learning_rate"] == ("0.004" if name in DEEP else "0.003")
        if name not in DEEP:
            assert 0.4 < float(row["tokens_per_second"]) / float(row["planned_tokens_per_second"]) < 0.5
    sizes = [int(rows[name]["parameters"]) / int(rows["dense"]["parameters"]) for name in ("moe_8e", "moe_32e")]
    assert f"`moe_8e` has {sizes[0]:.1f} times and `moe_32e` {sizes[1]:.1f} times the parameters of `dense`" in FLAT
    visited = [f"{float(rows[name]['experts_per_token']):.2f}" for name in ("moe_8e", "moe_32e")]
    dropped = [f"{100 * float(rows[name]['drop_rate']):.1f}" for name in ("moe_8e", "moe_32e")]
    assert visited[0] == visited[1]
    assert f"though in training a token visits {visited[0]}." in FLAT
    draw = f"visits {visited[0]} experts on average, of `moe_8e` and of `moe_32e`, mostly because of the draw: only"
    assert f"{draw} {' and '.join(dropped)} % of the choices" in FLAT
    first = contrast_rows("contrasts_own", "moe_8e - dense")["bleu"]
    seeds = [signed(float(first[name]), 2) for name in ("seed_low", "seed_high")]
    assert f"is {interval(first)[0]} BLEU ({seeds[0]} with the first seed, {seeds[1]} with the second)" in FLAT
    second = contrast_rows("contrasts_own", "moe_32e - moe_8e")["bleu"]
    assert f"behind `moe_8e` by {interval(second)[0].lstrip('−')} BLEU, with an interval below zero" in FLAT
    assert second["num_seeds"] == "1"
    assert float(second["ci_high"]) < 0
    delta, span = interval(contrast_rows("contrasts_unplanned", "moe_32e - dense")["bleu"])
    assert f"There it is {delta.lstrip('−')} BLEU behind `dense` ({span})" in FLAT
    assert "moe_32e - dense" not in PRIMARY


def test_the_readme_counts_the_models_and_says_which_losses_are_lower():
    rows = rows_of("systems")
    readme = re.sub(r"\s+", " ", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sum(int(row["num_seeds"]) for row in rows) == 7
    assert f"{38 - len({row['pair'] for row in rows_of('gains')})} of the 38 bilingual models, `moe_8e_12l`," in FLAT
    assert "seven of its 13 multilingual models are trained" in readme
    assert "experts make the training loss lower, not the translations better" in readme
    shallow = [row for row in rows if row["system"] not in DEEP]
    losses, scores = ([float(row[name]) for row in shallow] for name in ("training_loss", "bleu"))
    assert losses == sorted(losses, reverse=True)
    assert max(scores) == scores[0]


def test_the_text_on_the_deep_model_is_that_of_its_rows_and_curves():
    rows = {row["system"]: row for row in rows_of("runs")}
    deep, dense = rows["dense_12l_s1"], rows["dense_s1"]
    delta, span = interval(contrast_rows("contrasts_own", "dense_12l - dense")["bleu"])
    flops = float(deep["flops_per_token"]) / float(dense["flops_per_token"])
    assert f"with twice the layers and {flops:.1f} times the FLOPs, [is worse]" in ANSWERS
    assert f"than `dense`, by {delta.lstrip('−')} BLEU (one seed, difference {delta} {span})." in ANSWERS
    higher = [float(deep[name]) - float(dense[name]) for name in ("validation_loss", "training_loss")]
    words = f"is {delta.lstrip('−')} BLEU behind `dense` at seed 1 ({span}), and its loss is higher by {higher[0]:.2f}"
    assert f"{words} nats on the development sets and by {higher[1]:.2f} in training." in FLAT
    searched = [row for row in rows_of("rates") if row["recipe"] == "freesoft38_dense_12l"]
    losses = {row["learning_rate"]: float(row["validation_loss"]) for row in searched}
    assert min(losses, key=lambda rate: losses[rate]) == deep["learning_rate"]
    assert len(losses) == 4
    curves = [validations(f"{name}_s1.tar.xz") for name in ("dense_12l", "dense")]
    behind = {step: loss - curves[1][step] for step, loss in curves[0].items()}
    (*_, last_ahead), (first_behind, *_) = ([s for s in behind if (behind[s] > 0) is late] for late in (False, True))
    assert last_ahead < first_behind
    assert f"up to step {last_ahead} its loss on the development sets is lower than that of `dense`" in FLAT
    most = max(behind, key=lambda step: behind[step])
    assert f"from step {first_behind:,} on higher, at most by {behind[most]:.2f} (step {most:,})." in FLAT
    assert f"At the end, step {max(behind):,}, it is {behind[max(behind)]:.2f}." in FLAT
    for name in DEEP:
        (ledger,) = json.loads(read_archive(ARCHIVES / f"{name}_s1.tar.xz")["run.json"])["systems"]["moe"]
        assert ledger["processes"] == 2
    assert "The two models with 6+6 layers trained on both cores, two processes with a thread each" in FLAT
    shares = {name: [] for name in ("moe_32e", *DEEP)}
    for row in rows_of("tokens"):
        shares.get(row["system"], []).append(float(row["share_of_first"]))
    assert min(shares["dense_12l"]) > 1
    assert shares["moe_32e_12l"][-1] == pytest.approx(shares["moe_32e"][-1], abs=0.005)
    more = f"`dense_12l` needs more tokens than `dense`, each with {flops:.1f} times the FLOPs; with 32 experts"
    assert f"{more} (`moe_32e_12l`) 6+6 layers need about as many tokens as 3+3 with 32." in FLAT


def test_the_text_on_experts_in_the_deep_model_is_that_of_its_rows():
    interaction = contrast_rows("contrasts_own", "moe_32e_12l - dense_12l - moe_32e + dense")
    (bleu, span), (chrf, its_span) = interval(interaction["bleu"]), interval(interaction["chrf++"])
    assert interaction["bleu"]["num_seeds"] == "1"
    deep, shallow = (
        " BLEU ".join(interval(contrast_rows("contrasts_unplanned", name)["bleu"]))
        for name in ("moe_32e_12l - dense_12l", "moe_32e - dense")
    )
    of_shallow = shallow.replace(" BLEU ", " ")
    words = f"`moe_32e_12l` − `dense_12l` is {deep}, where `moe_32e` − `dense` is {of_shallow}. The difference between"
    assert f"{words} the two is the interaction, a planned comparison: {bleu} BLEU {span} and {chrf} chrF++" in FLAT
    seed = contrast_rows("contrasts_own", "moe_8e - dense")["bleu"]
    moved = float(seed["seed_high"]) - float(seed["seed_low"])
    chance = f"Another one may change it, as it changed `moe_8e` − `dense` by {moved:.2f} BLEU;"
    assert f"and {chrf} chrF++ {its_span}, with one seed. {chance}" in FLAT
    sizes = [int(row["parameters"]) / 1e6 for row in rows_of("systems")]
    assert f"models of {min(sizes):.0f} to {max(sizes):.0f} million parameters so far" in FLAT
    answer = f"32 experts lose less with 6+6 layers ({deep}) than with 3+3 ({of_shallow}), by {bleu.lstrip('+')} BLEU"
    assert f"{answer} {span}. Another seed may change this |" in ANSWERS
    rows = {row["system"].removesuffix("_s1"): row for row in rows_of("runs")}
    lower = [
        f"{float(rows[dense][loss]) - float(rows[mixture][loss]):.3f}"
        for loss in ("training_loss", "validation_loss")
        for dense, mixture in (("dense_12l", "moe_32e_12l"), ("dense", "moe_32e"))
    ]
    words = f"lower the loss by {lower[0]} nats with 6+6 layers and by {lower[1]} with 3+3, on the development sets by"
    assert f"{words} {lower[2]} and {lower[3]}." in FLAT
    used = {row["run"]: row for row in rows_of("source_use_12l")}
    own, other_loss = (
        [f"{float(used[f'{name}_s1'][loss]):.2f}" for name in DEEP] for loss in ("loss", "loss_with_others")
    )
    words = f"a loss of {own[0]} in `dense_12l` and of {own[1]} in `moe_32e_12l`, beside the source of another sentence"
    assert f"{words} {other_loss[0]} and {other_loss[1]} (the first 100 sentences" in FLAT
    best = max(float(rows[name]["bleu"]) for name in DEEP)
    assert best < float(rows["dense"]["bleu"]) - 2  # no deep model is level with `dense`


def test_the_text_on_news_is_that_of_its_rows():
    rows = rows_of("systems_ntrex4")
    scores = [float(row["bleu"]) for row in rows]
    assert {row["num_pairs"] for row in rows} == {"37"}
    assert f"the mean BLEU is {min(scores):.1f} to {max(scores):.1f}, since no text" in FLAT
    news = contrast_rows("contrasts_ntrex4", "moe_8e - dense")
    bleu, chrf = (
        f"{delta} {name} {span}"
        for name, (delta, span) in (("BLEU", interval(news["bleu"])), ("chrF++", interval(news["chrf++"])))
    )
    assert f"`moe_8e` − `dense` is {bleu} and {chrf}, `moe_32e` − `moe_8e`" in FLAT
    (bleu, span), (chrf, its_span) = (
        interval(row) for row in contrast_rows("contrasts_ntrex4", "moe_32e - moe_8e").values()
    )
    assert f"`moe_32e` − `moe_8e` {bleu} BLEU {span} and {chrf} chrF++ {its_span} (`contrasts_ntrex4.csv`)" in FLAT


def test_tokens_to_a_loss_are_those_of_the_answer_and_the_shares_fall_with_the_loss():
    shares = {}
    rows = [row for row in rows_of("tokens") if row["system"] not in DEEP]
    for row in rows:
        shares.setdefault(row["system"], []).append(float(row["share_of_first"]))
    losses = [float(row["loss"]) for row in rows if row["system"] == "dense"]
    assert losses == sorted(losses, reverse=True)
    for name in ("moe_8e", "moe_32e"):
        assert shares[name] == sorted(shares[name], reverse=True)
    assert all(many < few for few, many in zip(shares["moe_8e"], shares["moe_32e"], strict=True))
    saved = [f"{100 * (1 - shares[name][-1]):.0f} %" for name in ("moe_8e", "moe_32e")]
    answer = f"loss of {losses[-1]}, 8 experts need {saved[0]} fewer than `dense`, 32 experts {saved[1]} fewer, and no"
    assert answer in ANSWERS
    speeds = {row["system"]: float(row["tokens_per_second"]) for name in ("systems", "runs") for row in rows_of(name)}
    last = {row["system"]: row for row in rows if float(row["loss"]) == losses[-1]}
    tokens = {name: float(row["tokens"]) for name, row in last.items()}
    tokens["dense_s1"] = tokens["moe_32e"] / float(last["moe_32e"]["share_of_first"])  # at its one seed
    minutes = {name: f"{tokens[name] / speeds[name] / 60:.0f}" for name in tokens}
    of_two_seeds = (
        f"`moe_8e` took {minutes['moe_8e']} minutes where `dense` took {minutes['dense']} (means of two seeds)"
    )
    assert (
        f"{of_two_seeds}, and `moe_32e` {minutes['moe_32e']} where `dense` took {minutes['dense_s1']} (seed 1)." in FLAT
    )
    of_dense = [float(row["tokens_per_second"]) for row in rows_of("runs") if row["system"].startswith("dense_s")]
    apart = max(of_dense) / min(of_dense) - 1
    assert f"the speeds of the two trainings of `dense` differ by {100 * apart:.0f} %." in FLAT


def validations(archive):
    """Losses of the development sets by step."""
    events = [json.loads(line) for line in read_archive(ARCHIVES / archive)["metrics.jsonl"].splitlines()]
    return {event["step"]: event["cross_entropy"] for event in events if event["event"] == "validation"}


def losses_of(archive):
    return losses_by_pair(read_archive(ARCHIVES / archive)["metrics.jsonl"])


def test_losses_in_training_and_on_development_sets_are_those_of_the_archives():
    train_pairs = json.loads(read_archive(ARCHIVES / "dense_s1.tar.xz")["run.json"])["train_pairs"]
    tests = {name.removesuffix(".jsonl"): text for name, text in read_archive(ARCHIVES / "tests.tar.xz").items()}
    tail = [pair for pair in train_pairs if len(tests[pair].splitlines()) <= 400]
    classes = resource_classes({pair: rows for pair, rows in train_pairs.items() if pair not in tail})
    assert (len(tail), sum(len(classes[third]) for third in THIRDS)) == (11, 27)
    of_help, of_tail = {}, {}
    for name, seeds in (("moe_8e", (1, 2)), ("moe_32e", (1,))):
        curves = [(losses_of(f"{name}_s{seed}.tar.xz"), losses_of(f"dense_s{seed}.tar.xz")) for seed in seeds]
        for part in (0, 1):
            *thirds, of_tail[name, part] = (
                fmean(own[part][pair] - dense[part][pair] for own, dense in curves for pair in pairs)
                for pairs in (*(classes[third] for third in THIRDS), tail)
            )
            of_help[name, part] = [f"{-value:.{2 + part}f}" for value in thirds]
    few, many = of_help["moe_8e", 0], of_help["moe_32e", 0]
    assert f"lower than that of `dense` by {few[0]}, {few[1]} and {few[2]} nats on pairs with much, medium and" in FLAT
    assert f"little text, that of `moe_32e` by {many[0]}, {many[1]} and {many[2]}." in FLAT
    few, many = of_help["moe_8e", 1], of_help["moe_32e", 1]
    assert f"it is lower by {few[0]}, {few[1]} and {few[2]} for `moe_8e` and by {many[0]}, {many[1]} and" in FLAT
    assert f"{many[1]} and {many[2]} for `moe_32e`. On the 11 pairs" in FLAT
    lower, higher = ([of_tail[name, part] for name in ("moe_8e", "moe_32e")] for part in (0, 1))
    assert f"it is lower by {-lower[0]:.2f} and {-lower[1]:.2f} in training, and higher by {higher[0]:.3f} and" in FLAT
    assert f"{higher[1]:.3f} on the development sets (means over pairs" in FLAT
    losses = {row["system"]: float(row["validation_loss"]) for row in rows_of("runs")}
    assert abs(losses["dense_s1"] - losses["dense_s2"]) == pytest.approx(0.01, abs=0.002)
    of_systems = {row["system"]: float(row["validation_loss"]) for row in rows_of("systems")}
    assert max(abs(of_systems[name] - of_systems["dense"]) for name in ("moe_8e", "moe_32e")) < 0.01
    assert "the mean losses of both are within 0.01 of that of `dense`" in ANSWERS


def test_the_answer_on_ten_times_the_budget_is_that_of_its_row():
    row = rows_of("scaling")[0]
    assert (row["system"], row["num_seeds"], row["times"]) == ("dense", "2", "10")
    value, low, high = (f"{float(row[f'later{ending}']):.2f}" for ending in ("", "_low", "_high"))
    assert f"a training loss of {value} [{low}, {high}] in place of {float(row['loss']):.2f} for `dense`" in ANSWERS
    assert 10 * float(row["tokens"]) == pytest.approx(120e6, rel=0.02)
    for row in rows_of("scaling"):  # what the page says of the fit of the first half, and of the floor
        assert float(row["backtest_low"]) < float(row["loss"]) < float(row["backtest_high"])
        assert (float(row["backtest"]) < float(row["loss"])) == (row["system"] not in DEEP)
        assert row["floor_low"] == "0"
    too_high = [f"{float(row['backtest']) - float(row['loss']):.2f}" for row in rows_of("scaling")[-2:]]
    words = f"the three models with 3+3 layers, and too high for the two with 6+6, by {too_high[0]} and {too_high[1]}"
    assert f"It is too low for {words}; all five losses are within its intervals." in FLAT
