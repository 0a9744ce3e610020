"""The section on data: the funnel as figure and table, the cleaning rules, the sources, and removed rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from markupsafe import Markup

from eval.language import pair_labels, text_direction
from eval.records.funnel import RULES, PairFunnel, funnels_of, rules_of, save_funnel, settings_of, total, used_rules
from eval.records.run_record import Json, RunRecord
from eval.report.plots.funnel import plot_funnel
from eval.report.plots.style import inline_svg, save_figure

FUNNEL = "funnel"
_SHOWN_CHARACTERS = 240  # a longer side of an example is cut


@dataclass(frozen=True, kw_only=True)
class Source:
    """A source of training rows.

    pairs: number of language pairs for which it has rows.
    read, kept: rows before and after cleaning.
    """

    name: str
    tag: str
    licence: str
    citation: str
    pairs: int
    read: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class DataSection:
    """The values of the template `data_section.html.j2`.

    rules: rules that removed a row; each has a column.
    notes: (rule, sentence on it, settings, rows removed) of all rules that were on.
    changed: rows whose text normalisation changed.
    not_judged: (sentence on a rule that does not apply, pairs).
    by_pair: (pair, source), if some pair has several sources.
    examples: pair, its sides, and removed rows by rule.
    not_shown: pairs with removed rows, none of which a licence permits to show.
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
    """Return the section of a record, or None without a funnel. Writes funnel.csv, funnel.png and funnel.svg."""
    funnels = funnels_of(record)
    if not funnels:
        return None
    save_funnel(run_dir / f"{FUNNEL}.csv", funnels)
    figure = plot_funnel(funnels, pair_labels(record.pairs, record.languages))
    save_figure(figure, run_dir / FUNNEL)
    all_pairs = total(funnels)
    by_pair = [(funnel.pair, _source(item, 1)) for funnel in funnels for item in record.sources.get(funnel.pair, ())]
    description = "Training rows kept of those read: " + ", ".join(
        f"{f.pair} {f.kept:,} of {f.read:,}" for f in funnels
    )
    return DataSection(
        funnels=funnels,
        total=all_pairs if len(funnels) > 1 else None,
        rules=used_rules(funnels),
        notes=[
            (rule, RULES[rule][0] if rule in RULES else "", settings_of(rule, record.config), all_pairs.removed[rule])
            for rule in rules_of(funnels)
        ],
        changed=all_pairs.changed,
        not_judged=_not_judged(record, funnels),
        some_too_long=any(funnel.too_many_tokens for funnel in funnels),
        sources=_merged(by_pair),
        by_pair=by_pair if len(by_pair) > len(funnels) else [],
        examples=[_examples(record, funnel) for funnel in funnels if record.examples.get(funnel.pair)],
        not_shown=[f.pair for f in funnels if f.pair not in record.examples and any(f.removed.values())],
        figure=Markup(inline_svg(figure, FUNNEL, escape(description, quote=True))),
    )


def _not_judged(record: RunRecord, funnels: Sequence[PairFunnel]) -> list[tuple[str, list[str]]]:
    pairs_of: dict[str, list[str]] = {}
    for funnel in funnels:
        for reason in record.not_judged.get(funnel.pair, ()):
            pairs_of.setdefault(reason, []).append(funnel.pair)
    return list(pairs_of.items())


def _source(item: Json, pairs: int) -> Source:
    texts = {key: str(item.get(key) or "") for key in ("name", "tag", "licence", "citation")}
    return Source(**texts, pairs=pairs, read=int(item["read"]), kept=int(item["kept"]))


def _merged(by_pair: Sequence[tuple[str, Source]]) -> list[Source]:
    """Return each source once, with the sums over all pairs, most rows first."""
    sums: dict[tuple[str, ...], Source] = {}
    for _, source in by_pair:
        key = (source.name, source.tag, source.licence, source.citation)
        if (first := sums.get(key)) is not None:
            added = {name: getattr(first, name) + getattr(source, name) for name in ("pairs", "read", "kept")}
            source = replace(first, **added)
        sums[key] = source
    return sorted(sums.values(), key=lambda source: (-source.read, source.name))


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
    """Return the beginning of a text, and the text's number of characters if it was cut, else 0."""
    return (text, 0) if len(text) <= _SHOWN_CHARACTERS else (text[:_SHOWN_CHARACTERS].rstrip(), len(text))
