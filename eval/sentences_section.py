"""The report's translations: the same sentences by all systems, where the corpora's licences allow showing them."""

from collections.abc import Mapping, Sequence
from typing import Any

from eval.language import text_direction
from eval.results import RunResults, group_seeds
from eval.run_record import Translation, load_translations
from eval.scores import BASELINE, METRIC_NAMES, SYSTEM
from eval.sentence_choice import LEGIBLE, choose, legible_places, sentence_scores
from eval.word_marks import mark_differences

_PREFERRED = ("chrf++", "chrf", "bleu")  # a sentence's BLEU is mostly zero
_NUM_SENTENCES = 3  # of each kind


def sentences_section(runs: Sequence[RunResults]) -> Mapping[str, Any] | None:
    """What sentences_section.html.j2 shows of systems' translations and the first baselines'; of seeds the first.

    None unless every run's record allows it. Raises ValueError for missing translations.
    """
    if not runs or not all(run.record.sample_sentences for run in runs):
        return None
    shown = [system.runs[0] for system in group_seeds(runs)]
    metric = _metric(shown)
    train_pairs = {pair: count for run in reversed(shown) for pair, count in run.record.train_pairs.items()}
    pairs = sorted({pair for run in shown for pair in run.record.pairs}, key=lambda pair: (-train_pairs[pair], pair))
    baselines = next((run for run in shown if BASELINE in _names(run)), None)
    return {
        "metric": METRIC_NAMES[metric],
        "several": len(shown) > 1,
        "seeds": len(shown) < len(runs),
        "baselines": baselines.label if baselines else None,
        "length": (LEGIBLE.start, LEGIBLE.stop - 1),
        "count": _NUM_SENTENCES,
        "pairs": [_pair(pair, shown, baselines, metric) for pair in pairs],
    }


def _names(run: RunResults, pair: str | None = None) -> set[str]:
    return {row.system for row in run.scores if pair in (None, row.pair)}


def _metric(runs: Sequence[RunResults]) -> str:
    """The first of the preferred metrics that every run was scored by."""
    scored = [{row.metric for row in run.scores} for run in runs]
    return next((metric for metric in _PREFERRED if all(metric in found for found in scored)), _PREFERRED[-1])


def _pair(pair: str, runs: Sequence[RunResults], baselines: RunResults | None, metric: str) -> dict[str, Any]:
    """The systems that translate the test set of the first that has the pair; others are named in left_out."""
    files = [(run.label, run, SYSTEM) for run in runs if pair in run.record.pairs]
    if baselines is not None and BASELINE in _names(baselines, pair):
        files.append((BASELINE, baselines, BASELINE))
    translations = {label: load_translations(run.directory, name, pair) for label, run, name in files}
    first = next(iter(translations.values()))
    same = {label: lines for label, lines in translations.items() if _texts(lines) == _texts(first)}
    source, target = files[0][1].record.languages[pair]
    places = legible_places([line.reference for line in first], _NUM_SENTENCES)
    references = [first[place].reference for place in places]
    hypotheses = [[lines[place].hypothesis for place in places] for lines in same.values()]
    scores = sentence_scores(hypotheses, references, target, metric)
    column = {place: number for number, place in enumerate(places)}
    return {
        "pair": pair,
        "source": {"lang": source, "dir": text_direction(source)},
        "target": {"lang": target, "dir": text_direction(target)},
        "left_out": [label for label in translations if label not in same],
        "groups": [
            (kind, [_sentence(same, place, scores[:, column[place]].tolist()) for place in chosen])
            for kind, chosen in choose(places, scores, _NUM_SENTENCES).items()
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
