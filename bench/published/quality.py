"""The tables of translation quality."""

import statistics
from collections.abc import Sequence

from bench.output import MEAN, RESULTS
from bench.published.cells import Line, markdown, measurements, number, percent, read, source
from bench.quality.systems import RECIPE_NAMES
from bench.train.contenders import OURS
from eval.records.challenge import KINDS, PLAIN

NOISE_METHODS = ("none", "rules", "dual", "rules and dual", "undamaged")  # in the order of the table


def choosing() -> str:
    """Return the table of ways to search and to choose: means over the pairs and runs, and of each run.

    Raises ValueError if the rows of a way do not follow each other in the CSV.
    """
    lines = []
    rows = [*measurements("choice")]
    for path, way in dict.fromkeys((path, row["way"]) for path, row in rows):
        of_way = [row for other, row in rows if (other, row["way"]) == (path, way)]
        sentences, seconds = (sum(float(row[name]) for row in of_way) for name in ("sentences", "seconds"))
        scores = (_mean_of_runs(of_way, name) for name in ("bleu", "chrf++", "ter"))
        first, last = int(of_way[0]["line"]), int(of_way[-1]["line"])
        if last - first != len(of_way) - 1:
            raise ValueError(f"{path.name}: the rows of {way} do not follow each other")
        lines.append((way, number(f"{sentences / seconds}", 1), *scores, f"{path.stem}:{first}–{last}"))
    return markdown(("way", "sentences/s", "BLEU", "chrF++", "TER", "rows"), lines)


def _mean_of_runs(rows: Sequence[Line], metric: str) -> str:
    """Return the mean of a metric over pairs and runs, with that of each run in brackets."""
    by_run = [
        statistics.fmean(float(row[metric]) for row in rows if row["run"] == run)
        for run in dict.fromkeys(row["run"] for row in rows)
    ]
    means = ", ".join(number(f"{mean}", 1) for mean in by_run)
    return f"{number(f'{statistics.fmean(by_run)}', 1)} ({means})"


def augmentation() -> str:
    """Return the table of chrF++ on plain and changed lines, of models trained with and without such lines."""
    lines = []
    for path, row in measurements("augmentation"):
        plain = row["kind"] == PLAIN
        title = "unchanged" if plain else KINDS[row["kind"]].title
        score, bounds = ("plain", "ci") if plain else ("changed", "changed")
        gain = f"{float(row['gain' if plain else 'changed_gain']):+.1f}"
        if row[f"{bounds}_low"]:
            gain += f" [{float(row[f'{bounds}_low']):+.1f}, {float(row[f'{bounds}_high']):+.1f}]"
        scores, losses = ([number(row[f"{name}_{way}"], 1) for way in ("without", "with")] for name in (score, "loss"))
        lines.append((title, number(row["lines"]), *scores, gain, *losses, source(path, row)))
    header = ("lines", "number", "chrF++ without", "with", "difference", "loss without", "with", "row")
    return markdown(header, lines)


def noise() -> str:
    """Return the table of what each cleaning removes of damaged rows, and of BLEU after training on what it leaves."""
    rows = [*measurements("noise")]
    kinds = [*dict.fromkeys(row["kind"] for _, row in rows if row["kind"])]
    lines = []
    for method in sorted({row["method"] for _, row in rows}, key=NOISE_METHODS.index):
        of_method = [(path, row) for path, row in rows if row["method"] == method]
        by_kind = {row["kind"]: row for _, row in of_method if row["kind"]}
        removed = [percent(by_kind[kind]["recall"]) if by_kind else "" for kind in kinds]
        precision = percent(by_kind["all"]["precision"]) if by_kind else ""
        bleu = ", ".join(number(row["bleu"], 1) for _, row in of_method if row["bleu"])
        numbers = ", ".join(row["line"] for _, row in of_method)
        lines.append((method, *removed, precision, bleu, f"{of_method[0][0].stem}:{numbers}"))
    return markdown(("cleaning", *kinds, "precision", "BLEU, by seed", "rows"), lines)


def identification() -> str:
    """Return the rates of the language that is called wrong most often, and the medians, on each kind of text."""
    path, rates = RESULTS / "identification.csv", ("judged", "wrong", "english_found", "others_found")
    lines = []
    for split, title in (("test", "software"), ("news", "news")):
        rows = [row for row in read(path) if (row["section"], row["split"]) == ("language", split)]
        worst = max(rows, key=lambda row: float(row["wrong"]))
        shares = (percent(worst[name]) for name in rates)
        lines.append((f"{title}, {worst['language']}", number(worst["sentences"]), *shares, source(path, worst)))
        medians = (statistics.median(float(row[name]) for row in rows if row[name]) for name in rates)
        lines.append((f"{title}, median of {len(rows)}", "", *(percent(f"{median}") for median in medians), ""))
    header = ("text", "sentences", "judged", "called wrong", "English found", "others found", "row")
    return markdown(header, lines)


def quality() -> str:
    """Return the table of BLEU after equal training time, systems in the order of the contest."""
    lines = []
    for path, row in measurements("quality"):
        name = OURS if row["system"] == OURS else f"{row['system']}, {RECIPE_NAMES[row['configuration']]}"
        interval = f"[{number(row['ci_low'], 1)}, {number(row['ci_high'], 1)}]" if row["bleu"] else row["note"]
        tokens = f"{float(row['target_tokens']) / 1e6:.1f}" if row["bleu"] else ""
        lines.append((name, number(row["minutes"]), number(row["bleu"], 1), interval, tokens, source(path, row)))
    return markdown(("system", "minutes", "BLEU", "95 %", "million target tokens", "row"), lines)


def mixtures() -> str:
    """Return the table of mixtures: means over seeds, and the difference from the reference with its interval."""
    lines = []
    rows = [*measurements("mixtures")]
    for path, row in rows:
        if row["seed"] != MEAN:
            continue
        of_point = [other for file, other in rows if (file, other["settings"]) == (path, row["settings"])]
        losses = [float(other["validation"]) for other in of_point if other["seed"] != MEAN]
        loss = f"{number(row['validation'], 3)} [{min(losses):.3f}, {max(losses):.3f}]"
        difference = ""  # of the reference
        if row["ci_low"]:
            low, high = (f"{float(row[name]):+.2f}" for name in ("ci_low", "ci_high"))
            difference = f"{float(row['bleu_delta']):+.2f} [{low}, {high}]"
        balance = (number(row[name], 2) for name in ("load_max", "load_cv", "importance_cv"))
        cells = (loss, number(row["bleu"], 2), difference, *balance, number(row["tokens_per_second"]))
        lines.append((f"`{row['settings']}`", *cells, f"{path.stem}:{', '.join(other['line'] for other in of_point)}"))
    header = ("settings", "loss", "BLEU", "BLEU to `top2`", "largest load / mean", "CV of load", "CV of importance")
    return markdown((*header, "tokens/s", "rows"), lines)


def extension() -> str:
    """Return the table of two languages added to a model: scores, and their difference from the extended model."""
    lines = []
    for path, row in measurements("extension"):
        cells = [f"{float(row['target_tokens']) / 1e6:.0f}"]
        for metric in ("bleu", "chrf++"):
            cells += [
                f"{number(row[metric], 1)} [{number(row[f'{metric}_low'], 1)}, {number(row[f'{metric}_high'], 1)}]"
            ]
            bounds = ", ".join(f"{float(row[f'{metric}_delta{bound}'] or 0):+.1f}" for bound in ("_low", "_high"))
            cells += [f"{float(row[f'{metric}_delta']):+.1f} [{bounds}]" if row[f"{metric}_delta"] else ""]
        text = row["text"] if row["pairs"] == "1" else f"mean of {row['pairs']} others"
        lines.append((f"{text}, {row['system']}", *cells, source(path, row)))
    header = ("text, system", "million target tokens", "BLEU", "to extended", "chrF++", "to extended", "row")
    return markdown(header, lines)
