"""docs/experiment-mixtures.md, and the answers on it: what they say of ablations and experts is in their files."""

import json
from statistics import fmean

import pytest

from bench.experiment.archive import read_archive
from bench.published.experts import ARCHIVE
from eval.number_format import signed
from eval.records.specialisation import SPECIALISATION
from eval.score.macro import resource_classes
from pipeline.config import ROOT, load_config
from tests.experiment_tables import answers, contrast_rows, interval, losses_by_pair, rows_of, words_of

S1 = ROOT / "recipes" / "freesoft38" / "ablations" / "s1"
FLAT, ANSWERS = words_of("experiment-mixtures"), answers()
DENSE, TASK = "num_experts=0", "gate=task model.moe.gate.k=2"
ABLATIONS = {row["settings"].removeprefix("model.moe."): row for row in rows_of("ablations") if row["seed"] == "mean"}


def test_the_text_on_the_parts_of_the_mixture_is_that_of_their_rows():
    dense, mixtures = ABLATIONS[DENSE], {name: row for name, row in ABLATIONS.items() if name != DENSE}
    changed = {name: row for name, row in mixtures.items() if row["ci_low"]}
    (recipe,) = {*mixtures} - {*changed}
    assert recipe == f"gate.balance_weight={load_config(['recipes=freesoft38/moe_8e']).model.moe.gate.balance_weight}"
    apart = [name for name, row in changed.items() if not float(row["ci_low"]) < 0 < float(row["ci_high"])]
    shared = "gate=topk model.moe.gate.k=1 model.moe.gate.normalize=false model.moe.gate.capacity_factor=1"
    assert apart == ["gate.capacity_factor=2", f"{shared} model.moe.shared_experts=1", TASK]
    assert len(changed) == 8
    (delta, span), (worse, its_span), (of_task, span_of_task) = (
        interval(ABLATIONS[name], "bleu_delta") for name in apart
    )
    without, of_dense = interval(dense, "bleu_delta")
    below = f"of eight changes, three have an interval below zero: twice the slots ({delta} BLEU {span}), one choice"
    assert f"{below} beside a shared expert ({worse} {its_span}), and routing by task" in ANSWERS
    more = f"and routing by task ({of_task} {span_of_task}), which costs more than having no experts at all"
    assert f"{more} ({without} {of_dense}). But" in ANSWERS
    losses = {name: float(row["validation"]) for name, row in mixtures.items()}
    cost = f"**Routing by task costs most**: {of_task.lstrip('−')} BLEU, and {losses[TASK] - losses[recipe]:.2f} nats"
    assert f"{cost} of the loss." in FLAT
    behind = float(dense["validation"]) - float(mixtures[recipe]["validation"])
    less = f"has less BLEU than every mixture that routes tokens**, {without.lstrip('−')} less than the recipe"
    assert f"{less}, and a loss higher by {behind:.3f}." in FLAT
    scores = sorted(float(row["bleu"]) for row in mixtures.values())
    assert float(ABLATIONS[TASK]["bleu"]) == scores[0] < float(dense["bleu"]) < scores[1]
    assert f"**A shared expert beside one choice** has {worse.lstrip('−')} BLEU less." in FLAT
    assert f"and that model has {delta.lstrip('−')} BLEU less at the same loss." in FLAT
    assert losses["gate.capacity_factor=2"] == pytest.approx(losses[recipe], abs=0.005)
    by_loss = sorted(losses.keys() - {TASK}, key=lambda name: losses[name])
    assert (by_loss[0], by_loss[-1]) == ("gate.second=all", "gate.balance_weight=0")
    gain, price = losses[recipe] - losses[by_loss[0]], losses[by_loss[-1]] - losses[recipe]
    page = words_of("experiment")
    assert f"The loss is lower by {gain:.3f} with `second=all`, and higher by {price:.3f} without" in page
    assert f"where {100 * float(ABLATIONS[by_loss[-1]]['drop_rate']):.0f} % of the choices find no slot." in page
    sizes = [f"{int(row['parameters']) / 1e6:.1f}" for row in mixtures.values()]
    assert f"`gate=top1` has {sizes[-4]} M parameters and the line with a shared expert {sizes[-2]} M" in FLAT
    assert {*sizes[:-4], sizes[-3], sizes[-1]} == {"9.5"}
    assert "all other mixtures 9.5 M." in FLAT
    assert float(ABLATIONS["gate.capacity_factor=2"]["drop_rate"]) < 0.01
    shares = [
        (f"{100 * float(row['drop_rate']):.0f} %", f"{float(row['experts_per_token']):.2f}")
        for row in (ABLATIONS["gate.capacity_factor=0.5"], ABLATIONS["gate.balance_weight=0"])
    ]
    assert f"With half the slots {shares[0][0]} of the choices find none, and a token visits {shares[0][1]} exp" in FLAT
    assert f"without the balancing loss it is {shares[1][0]} and {shares[1][1]}." in FLAT
    loads = {name: float(row["load_max"]) for name, row in mixtures.items()}
    unbalanced = loads.pop("gate.balance_weight=0")
    assert f"the busiest expert has {unbalanced:.1f} times the mean load**" in FLAT
    assert f"(or the bias of `sigmoid`) {min(loads.values()):.1f} to {max(loads.values()):.1f} times" in FLAT
    full = contrast_rows("contrasts_own", "moe_8e - dense")["bleu"]
    seeds = [signed(float(full[name]), 2) for name in ("seed_low", "seed_high")]
    assert f"is known of `moe_8e` − `dense` alone: it is {seeds[0]} and {seeds[1]} BLEU at the full budget." in FLAT
    searched = {row["system"]: float(row["bleu"]) for row in rows_of("rates")}
    rehearsed = {row["id"]: float(row["bleu"]) for row in rows_of("rehearsal")}
    early = searched["moe_8e_learning_rate-0.003"] - searched["dense_learning_rate-0.003"]
    later = rehearsed["moe_8e_s1"] - rehearsed["dense_s1"]
    assert f"With seed 1 it is {early:.2f} BLEU after 1.2 M target tokens" in FLAT
    slower = searched["moe_8e_learning_rate-0.0015"] - searched["dense_learning_rate-0.0015"]
    assert f"{later:.2f} after 2 M ([the rehearsal](experiment-commands.md#what-did-the-rehearsal-show)) and" in FLAT
    later = f"and {seeds[0]} after 12 M. (With half the rate it is {slower:.2f} after 1.2 M.) So the"
    assert f"{later} {without.lstrip('−')} may be chance." in FLAT
    assert f"All models were still improving, at {scores[0]:.1f} to {scores[-1]:.1f} BLEU." in FLAT


def test_routing_by_task_is_behind_in_each_third_in_training_and_on_development_sets():
    names = ("8e_6l_task_k-2", "8e_6l_balance_weight-0.01", "dense_6l")
    files = [read_archive(S1 / f"{name}.tar.xz") for name in names]
    pairs = json.loads(files[0]["run.json"])["train_pairs"]
    by_task, by_token, dense = (third_losses(one["metrics.jsonl"], resource_classes(pairs)) for one in files)
    assert len(by_task) == 6
    apart = [[loss - lower[key] for key, loss in by_task.items()] for lower in (by_token, dense)]
    assert f"higher by {min(apart[0]):.2f} to {max(apart[0]):.2f} nats with much, medium and little text alike" in FLAT
    assert min(apart[1]) > 0
    assert "in training as on the development sets. Even the dense model is better." in FLAT


def third_losses(metrics, classes):
    """Means over pairs of their losses, by third and place: 0 in training, 1 on the development sets."""
    return {
        (third, place): fmean(losses[pair] for pair in classes[third])
        for third in ("high", "medium", "low")
        for place, losses in enumerate(losses_by_pair(metrics))
    }


def test_the_archives_of_the_ablations_are_those_of_their_rows():
    rows = {row["point"]: row for row in rows_of("ablations") if row["seed"] != "mean"}
    names = {path.name.removesuffix(".tar.xz") for path in S1.glob("*.tar.xz")}
    assert names == {"tests", *rows}
    for name, row in rows.items():
        files = read_archive(S1 / f"{name}.tar.xz")
        record = json.loads(files["run.json"])
        assert record["commit"][:7] in FLAT
        assert (record["config"]["train"]["seed"], row["seed"]) == (1, "1")
        events = [json.loads(line) for line in files["metrics.jsonl"].splitlines()]
        losses = [event["cross_entropy"] for event in events if event["event"] == "validation"]
        assert min(losses) == losses[-1] == pytest.approx(float(row["validation"]), rel=1e-3)


def test_what_the_text_says_of_the_experts_is_in_their_archive():
    layers = json.loads(read_archive(ARCHIVE)[SPECIALISATION])["layers"]
    encoder, decoder = (layer["information"] for layer in layers.values())
    shares = {
        name: [f"{100 * layer[name]:.{digits}f}" for layer in (encoder, decoder)]
        for name, digits in (("piece", 0), ("class", 0), ("language", 1))
    }
    pieces = f"away {shares['piece'][0]} % of the uncertainty about its first expert in the encoder and"
    assert f"{pieces} {shares['piece'][1]} % in the decoder, knowing the piece's class" in FLAT
    assert f"(word, number, punctuation and so on) {' and '.join(shares['class'])} %, and knowing its language" in FLAT
    assert f"knowing its language {' and '.join(shares['language'])} %" in FLAT
    for layer, expert, examples in (
        ("encoder.2", 1, "▁de ▁la ▁di ▁da ▁do ▁el"),
        ("encoder.2", 2, ". 。 ▁។"),
        ("encoder.2", 3, ", 、 ▁e ▁i ▁in ▁в </s>"),
        ("encoder.2", 4, "を 을"),
        ("encoder.2", 5, "s e t i r n"),
        ("encoder.2", 6, "▁un ▁una ▁um ▁een ▁bir"),
        ("encoder.2", 7, "c x v p b d"),
        ("decoder.2", 0, "e c D a ▁C ▁F"),
        ("decoder.2", 1, "ed ing ▁used ▁selected ▁inserted"),
        ("decoder.2", 2, "</s> , ▁and ▁or"),
        ("decoder.2", 3, ". ▁objects ▁values ▁documents"),
        ("decoder.2", 4, "▁you ▁it ▁that ▁if ▁which"),
        ("decoder.2", 5, "▁the ▁a ▁an ▁your ▁each"),
        ("decoder.2", 6, "▁of ▁in ▁for ▁on ▁is ▁are ▁be"),
        ("decoder.2", 7, "▁document ▁object ▁file ▁page"),
    ):
        assert {*examples.split()} <= {piece["text"] for piece in layers[layer]["experts"][expert]["pieces"]}
