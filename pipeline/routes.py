"""Ways to translate a direction with a finished run: in one step, or in two steps through a third language."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from pipeline.corpus.languages import LangPair, normalize_code
from pipeline.dag.reuse import trained_config
from pipeline.finished_run import FinishedRun
from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.schema import build
from pipeline.vocab.vocabulary import VOCABULARY

logger = logging.getLogger(__name__)

PREFERRED_PIVOT = "en"


@dataclass(frozen=True, kw_only=True)
class Route:
    """A direction to translate. pivot: language of the middle step, empty for one step."""

    pair: LangPair
    pivot: str = ""


@dataclass(frozen=True, kw_only=True)
class Ways:
    """The ways to translate a direction that a run was not trained on.

    direct_fault: why the run cannot translate it in one step, empty where it can.
    pivots: languages of a middle step whose two directions the run was trained on, English first.
    """

    direct_fault: str
    pivots: tuple[str, ...]


def find_route(run: FinishedRun, text: str, *, direct: bool = False, pivot: str = "") -> Route:
    """Return the way to translate the direction that a user means, and log it where it has two steps.

    direct: take one step in a direction that was not trained, where nothing but a tag names the target language.
    pivot: language of the middle step; by default only a direction that was not trained has one.
    Raises ValueError if a language is unknown, or if the run cannot translate so.
    """
    pair = run.named_pair(text, tags(run))
    if direct and pivot:
        raise ValueError(f"direct=true takes one step, and pivot={pivot} two; give one of them")
    if pair in run.pairs and not pivot:
        return Route(pair=pair)
    ways = find_ways(run, pair)
    if direct:
        if ways.direct_fault:
            raise ValueError(f"run {run.name} cannot translate {pair} with direct=true: {ways.direct_fault}")
        return Route(pair=pair)
    if pivot and normalize_code(pivot) not in ways.pivots:
        possible = f"; it can go through {', '.join(ways.pivots)}" if ways.pivots else ""
        raise ValueError(f"pivot={pivot}: run {run.name} does not translate {pair} through it{possible}")
    if not ways.pivots:
        raise ValueError(no_way(run, pair, ways))
    route = Route(pair=pair, pivot=normalize_code(pivot) if pivot else ways.pivots[0])
    logger.info("%s: in two steps, %s-%s and %s-%s", pair, pair.src, route.pivot, route.pivot, pair.tgt)
    return route


def find_ways(run: FinishedRun, pair: LangPair) -> Ways:
    """Return the ways in which a run can translate a direction without being trained on it."""
    from_source = {other.tgt for other in run.pairs if other.src == pair.src}
    middle = [other.src for other in run.pairs if other.tgt == pair.tgt and other.src in from_source]
    return Ways(
        direct_fault=_direct_fault(run, pair),
        pivots=tuple(sorted(middle, key=lambda code: (code != PREFERRED_PIVOT, code))),
    )


def no_way(run: FinishedRun, pair: LangPair, ways: Ways) -> str:
    """Return the message for a direction without a pivot: why it has none, and whether one step is possible.

    A pruning and an ensemble may have fewer directions than the run, so that the remedy is to leave them out.
    """
    limit = f"experts={Path(run.experts).stem}" if run.experts else "decode.ensemble" if run.ensemble else ""
    from_source = ", ".join(other.name for other in run.pairs if other.src == pair.src)
    into_target = ", ".join(other.name for other in run.pairs if other.tgt == pair.tgt)
    if not from_source or not into_target:
        lack = f"from {pair.src}" if not from_source else f"into {pair.tgt}"
        no_pivot = f"it has no direction {lack}" if limit else f"it was trained on no direction {lack}"
    else:
        no_pivot = f"{from_source} and {into_target} have no third language in common"
    one_step = (
        f"not by direct=true, because {ways.direct_fault}"
        if ways.direct_fault
        else f"direct=true translates by the tag of {pair.tgt} alone"
    )
    remedy = f"or leave {limit} out" if limit else f'or train one that does (make train LANG_PAIRS="{pair}")'
    return (
        f"{run.title}{f' with {limit}' if run.experts else ''} does not translate {pair}, but "
        f"{', '.join(other.name for other in run.pairs)}; not in two steps, because {no_pivot}; {one_step}; {remedy}"
    )


def tags(run: FinishedRun) -> frozenset[str]:
    """Return the languages for which the vocabulary of a run has a tag."""
    return frozenset(_vocabulary(run)["tags"])


def _vocabulary(run: FinishedRun) -> dict[str, dict[str, int]]:
    content: dict[str, dict[str, int]] = json.loads((run.vocabulary.path / VOCABULARY).read_text(encoding="utf-8"))
    return content


def _direct_fault(run: FinishedRun, pair: LangPair) -> str:
    """Return why a run cannot translate a direction in one step, empty where it can."""
    content = _vocabulary(run)
    for code in (pair.src, pair.tgt) if content.get("tags_by_side") else (pair.tgt,):
        if code not in content["tags"]:
            return f"its vocabulary has no tag of {code}, but of {', '.join(content['tags'])}"
    if run.ensemble and pair.name in run.record()["pairs"]:
        return "a model of its decode.ensemble was not trained on it"
    own = build(MoEConfig, run.record()["config"]["model"]["moe"], "model.moe")
    for moe in (own, *(trained_config(member).moe for member in run.ensemble)):
        for gate in (moe.gate, moe.encoder_gate) if moe.num_experts else ():
            if isinstance(gate, TaskConfig) and gate.task_of(f"{pair.src}:{pair.tgt}") not in gate.tasks:
                return f"its gate=task has experts for {', '.join(gate.tasks)} alone"
    return ""
