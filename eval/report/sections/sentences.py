"""The section on translations: the same sentences by all systems, if the licences of the corpora permit it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eval.language import text_direction
from eval.records.results import RunResults, group_seeds
from eval.records.run_record import Translation, load_translations
from eval.records.scores import BASELINE, METRICS, PIVOT, SYSTEM, TITLES
from eval.report.sections.sentence_choice import LEGIBLE, choose, legible_places, sentence_scores
from eval.report.sections.word_marks import mark_differences

_PREFERRED = ("chrf++", "chrf", "bleu")  # BLEU comes last, because it is zero for most single sentences
_NUM_SENTENCES = 3  # of each kind
ALL_SENTENCES = "translations.html"  # the page that has the others too


@dataclass(frozen=True, kw_only=True)
class ShownSystems:
    """The systems whose translations a page shows.

    seeds: the first seed of each system.
    baselines: the first run that has baselines, None if none has.
    metric: the metric of single sentences.
    pairs: in decreasing order of training data.
    """

    seeds: Sequence[RunResults]
    baselines: RunResults | None
    metric: str
    pairs: Sequence[str]

    def limited(self, most: int) -> "ShownSystems":
        """Return the baselines and as many of the first systems, one at least, as have at most so many translations."""
        rows = {pair: next(iter(self.translations(pair)[0].values())) for pair in self.pairs}
        lines = sum(len(of_pair) for of_pair in rows.values())
        columns = 1 + any(PIVOT in run.record.translated for run in self.seeds)  # of a system, at most
        count = (most // max(1, lines) - (self.baselines is not None)) // columns
        fewer = replace(self, seeds=self.seeds[: max(1, count)])
        return replace(fewer, pairs=[pair for pair in self.pairs if fewer.runs(pair)])

    def runs(self, pair: str) -> dict[str, tuple[RunResults, str]]:
        """Return the run of each system that translates a pair, and its name there, by label.

        The name is SYSTEM, BASELINE, or PIVOT for translations in two steps.
        """
        runs: dict[str, tuple[RunResults, str]] = {}
        for run in self.seeds:
            if pair in run.record.translated.get(SYSTEM, run.record.pairs):
                runs[run.label] = run, SYSTEM
            if pair in run.record.translated.get(PIVOT, ()):
                runs[f"{run.label}, {TITLES[PIVOT]}"] = run, PIVOT
        if self.baselines is not None and BASELINE in _names(self.baselines, pair):
            runs[BASELINE] = self.baselines, BASELINE
        return runs

    def translations(self, pair: str) -> tuple[dict[str, list[Translation]], list[str]]:
        """Return the lines of all systems with the test set of the first, and the labels of the others.

        Raises ValueError for missing translations.
        """
        by_label = {
            label: load_translations(run.directory, name, pair) for label, (run, name) in self.runs(pair).items()
        }
        first = next(iter(by_label.values()))
        comparable = {label: lines for label, lines in by_label.items() if _texts(lines) == _texts(first)}
        return comparable, [label for label in by_label if label not in comparable]


def shown_systems(runs: Sequence[RunResults]) -> ShownSystems | None:
    """Return the systems whose sentences a page of these runs shows, or None if a run's record does not permit it."""
    if not runs or not all(run.record.sample_sentences for run in runs):
        return None
    seeds = [system.runs[0] for system in group_seeds(runs)]
    train_pairs = {pair: count for run in reversed(seeds) for pair, count in run.record.train_pairs.items()}
    return ShownSystems(
        seeds=seeds,
        baselines=next((run for run in seeds if BASELINE in _names(run)), None),
        metric=_metric(seeds),
        pairs=sorted({pair for run in seeds for pair in run.record.pairs}, key=lambda pair: (-train_pairs[pair], pair)),
    )


def sentences_section(runs: Sequence[RunResults]) -> Mapping[str, Any] | None:
    """Return the values of sentences_section.html.j2, or None if a run's record does not permit to show sentences.

    A system is shown by its first seed, and the baselines are those of the first run that has some.
    Raises ValueError for missing translations.
    """
    systems = shown_systems(runs)
    if systems is None:
        return None
    return {
        "metric": METRICS[systems.metric].title,
        "several": len(systems.seeds) > 1,
        "seeds": len(systems.seeds) < len(runs),
        "baselines": systems.baselines.label if systems.baselines else None,
        "length": (LEGIBLE.start, LEGIBLE.stop - 1),
        "count": _NUM_SENTENCES,
        "all_sentences": ALL_SENTENCES,
        "pairs": [_pair(pair, systems) for pair in systems.pairs],
    }


def _names(run: RunResults, pair: str | None = None) -> set[str]:
    return {row.system for row in run.scores if pair in (None, row.pair)}


def _metric(runs: Sequence[RunResults]) -> str:
    """Return the first of the preferred metrics by which every run was scored."""
    metrics_of_runs = [{row.metric for row in run.scores} for run in runs]
    return next((name for name in _PREFERRED if all(name in metrics for metrics in metrics_of_runs)), _PREFERRED[-1])


def _pair(pair: str, systems: ShownSystems) -> dict[str, Any]:
    """Return the sentences of a pair by all systems with the test set of the first. `left_out` names the others."""
    comparable, left_out = systems.translations(pair)
    first = next(iter(comparable.values()))
    source, target = next(iter(systems.runs(pair).values()))[0].record.languages[pair]
    places = legible_places([line.reference for line in first], _NUM_SENTENCES)
    references = [first[place].reference for place in places]
    hypotheses = [[lines[place].hypothesis for place in places] for lines in comparable.values()]
    scores = sentence_scores(hypotheses, references, target, systems.metric)
    column = {place: number for number, place in enumerate(places)}
    return {
        "pair": pair,
        "source": {"lang": source, "dir": text_direction(source)},
        "target": {"lang": target, "dir": text_direction(target)},
        "left_out": left_out,
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
