"""The section on translations: the same sentences by all systems, if the licences of the corpora permit it."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.language import text_direction
from eval.records.results import RunResults, group_seeds
from eval.records.run_record import Translation, load_translations
from eval.records.scores import BASELINE, METRICS, SYSTEM
from eval.report.sections.sentence_choice import LEGIBLE, choose, legible_places, sentence_scores
from eval.report.sections.word_marks import mark_differences

_PREFERRED = ("chrf++", "chrf", "bleu")  # BLEU comes last, because it is zero for most single sentences
_NUM_SENTENCES = 3  # of each kind


def sentences_section(runs: Sequence[RunResults]) -> Mapping[str, Any] | None:
    """Return the values of sentences_section.html.j2, or None if a run's record does not permit to show sentences.

    A system is shown by its first seed, and the baselines are those of the first run that has some.
    Raises ValueError for missing translations.
    """
    if not runs or not all(run.record.sample_sentences for run in runs):
        return None
    seeds = [system.runs[0] for system in group_seeds(runs)]
    metric = _metric(seeds)
    train_pairs = {pair: count for run in reversed(seeds) for pair, count in run.record.train_pairs.items()}
    pairs = sorted({pair for run in seeds for pair in run.record.pairs}, key=lambda pair: (-train_pairs[pair], pair))
    baselines = next((run for run in seeds if BASELINE in _names(run)), None)
    return {
        "metric": METRICS[metric].title,
        "several": len(seeds) > 1,
        "seeds": len(seeds) < len(runs),
        "baselines": baselines.label if baselines else None,
        "length": (LEGIBLE.start, LEGIBLE.stop - 1),
        "count": _NUM_SENTENCES,
        "pairs": [_pair(pair, seeds, baselines, metric) for pair in pairs],
    }


def _names(run: RunResults, pair: str | None = None) -> set[str]:
    return {row.system for row in run.scores if pair in (None, row.pair)}


def _metric(runs: Sequence[RunResults]) -> str:
    """Return the first of the preferred metrics by which every run was scored."""
    metrics_of_runs = [{row.metric for row in run.scores} for run in runs]
    return next((name for name in _PREFERRED if all(name in metrics for metrics in metrics_of_runs)), _PREFERRED[-1])


def _pair(pair: str, runs: Sequence[RunResults], baselines: RunResults | None, metric: str) -> dict[str, Any]:
    """Return the sentences of a pair by all systems with the test set of the first. `left_out` names the others."""
    files = [(run.label, run, SYSTEM) for run in runs if pair in run.record.pairs]
    if baselines is not None and BASELINE in _names(baselines, pair):
        files.append((BASELINE, baselines, BASELINE))
    translations = {label: load_translations(run.directory, name, pair) for label, run, name in files}
    first = next(iter(translations.values()))
    comparable = {label: lines for label, lines in translations.items() if _texts(lines) == _texts(first)}
    source, target = files[0][1].record.languages[pair]
    places = legible_places([line.reference for line in first], _NUM_SENTENCES)
    references = [first[place].reference for place in places]
    hypotheses = [[lines[place].hypothesis for place in places] for lines in comparable.values()]
    scores = sentence_scores(hypotheses, references, target, metric)
    column = {place: number for number, place in enumerate(places)}
    return {
        "pair": pair,
        "source": {"lang": source, "dir": text_direction(source)},
        "target": {"lang": target, "dir": text_direction(target)},
        "left_out": [label for label in translations if label not in comparable],
        "groups": [
            (kind, [_sentence(comparable, place, scores[:, column[place]].tolist()) for place in kind_places])
            for kind, kind_places in choose(places, scores, _NUM_SENTENCES).items()
        ],
    }


def _texts(lines: Sequence[Translation]) -> list[tuple[str, str]]:
    return [(line.source, line.reference) for line in lines]


def _sentence(systems: Mapping[str, Sequence[Translation]], place: int, scores: Sequence[float]) -> dict[str, Any]:
    line = next(iter(systems.values()))[place]
    return {
        "line": place + 1,
        "source": line.source,
        "reference": line.reference,
        "hypotheses": [
            (label, score, mark_differences(lines[place].hypothesis, line.reference))
            for (label, lines), score in zip(systems.items(), scores, strict=True)
        ],
    }
