"""The part of a page that shows the data: the funnel as figure and table, rules, sources, and rows removed."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from markupsafe import Markup

from eval.figure_style import inline_svg, save_figure
from eval.funnel import RULES, PairFunnel, funnels_of, rules_of, save_funnel, settings_of, total, used_rules
from eval.funnel_plot import plot_funnel
from eval.language import pair_labels, text_direction
from eval.run_record import Json, RunRecord

FUNNEL = "funnel"
_SHOWN_CHARACTERS = 240  # of a side of an example


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where training rows come from; pairs: how many it has rows of."""

    name: str
    tag: str
    licence: str
    citation: str
    pairs: int
    read: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """What the template `data_section.html.j2` shows.

    rules: those that removed a row, which are the columns. notes: (rule, what it removes, settings, rows) of all that
    were on. changed: rows whose text normalisation changed. not_judged: (which rule does not apply and why, pairs).
    by_pair: (pair, source) where some pair has several. examples: pair, its sides, and rows by rule.
    not_shown: pairs without any row that a licence allows to show, though rows were removed.
    """

    funnels: Sequence[PairFunnel]
    total: PairFunnel | None
    rules: Sequence[str]
    notes: Sequence[tuple[str, str, Sequence[str], int]]
    changed: int
    not_judged: Sequence[tuple[str, Sequence[str]]]
    some_too_long: bool
    sources: Sequence[Source]
    by_pair: Sequence[tuple[str, Source]]
    examples: Sequence[Json]
    not_shown: Sequence[str]
    figure: Markup


def data_section(run_dir: Path, record: RunRecord) -> DataSection | None:
    """The section of a record, None where it has no funnel; writes funnel.csv, funnel.png and funnel.svg."""
    funnels = funnels_of(record)
    if not funnels:
        return None
    save_funnel(run_dir / f"{FUNNEL}.csv", funnels)
    figure = plot_funnel(funnels, pair_labels(record.pairs, record.languages))
    save_figure(figure, run_dir / FUNNEL)
    everything = total(funnels)
    by_pair = [(funnel.pair, _source(item, 1)) for funnel in funnels for item in record.sources.get(funnel.pair, ())]
    description = "Training rows kept of those read: " + ", ".join(
        f"{f.pair} {f.kept:,} of {f.read:,}" for f in funnels
    )
    return DataSection(
        funnels=funnels,
        total=everything if len(funnels) > 1 else None,
        rules=used_rules(funnels),
        notes=[
            (rule, RULES[rule][0] if rule in RULES else "", settings_of(rule, record.config), everything.removed[rule])
            for rule in rules_of(funnels)
        ],
        changed=everything.changed,
        not_judged=_not_judged(record, funnels),
        some_too_long=any(funnel.too_many_tokens for funnel in funnels),
        sources=_merged(by_pair),
        by_pair=by_pair if len(by_pair) > len(funnels) else [],
        examples=[_examples(record, funnel) for funnel in funnels if record.examples.get(funnel.pair)],
        not_shown=[f.pair for f in funnels if f.pair not in record.examples and any(f.removed.values())],
        figure=Markup(inline_svg(figure, FUNNEL, escape(description, quote=True))),
    )


def _not_judged(record: RunRecord, funnels: Sequence[PairFunnel]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for funnel in funnels:
        for reason in record.not_judged.get(funnel.pair, ()):
            found.setdefault(reason, []).append(funnel.pair)
    return list(found.items())


def _source(item: Json, pairs: int) -> Source:
    texts = {key: str(item.get(key) or "") for key in ("name", "tag", "licence", "citation")}
    return Source(**texts, pairs=pairs, read=int(item["read"]), kept=int(item["kept"]))


def _merged(by_pair: Sequence[tuple[str, Source]]) -> list[Source]:
    """Each source once, over all pairs, most rows first."""
    found: dict[tuple[str, ...], Source] = {}
    for _, source in by_pair:
        key = (source.name, source.tag, source.licence, source.citation)
        before = found.get(key)
        found[key] = Source(
            name=source.name,
            tag=source.tag,
            licence=source.licence,
            citation=source.citation,
            pairs=source.pairs + (before.pairs if before else 0),
            read=source.read + (before.read if before else 0),
            kept=source.kept + (before.kept if before else 0),
        )
    return sorted(found.values(), key=lambda source: (-source.read, source.name))


def _examples(record: RunRecord, funnel: PairFunnel) -> Json:
    sides = [{"lang": code, "dir": text_direction(code)} for code in record.languages[funnel.pair]]
    rows = record.examples[funnel.pair]
    return {
        "pair": funnel.pair,
        "sides": sides,
        "rules": [
            (rule, funnel.removed[rule], [[_cut(text) for text in row] for row in rows[rule]])
            for rule in funnel.removed
            if rows.get(rule)
        ],
        "count": sum(len(rows[rule]) for rule in funnel.removed if rule in rows),
    }


def _cut(text: str) -> tuple[str, int]:
    """The beginning of a text, and how many characters it has where that is not all, else 0."""
    return (text, 0) if len(text) <= _SHOWN_CHARACTERS else (text[:_SHOWN_CHARACTERS].rstrip(), len(text))
