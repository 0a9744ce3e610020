"""README.md of an export: the model, its training data, its scores and its use."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from eval.number_format import decimal, integer
from eval.records.run_record import TEST_SETS
from eval.records.scores import METRICS, SYSTEM, ScoreRow, load_scores
from pipeline.earlier_runs import IMPORTED
from pipeline.finished_run import FinishedRun


def model_card(
    run: FinishedRun,
    directory: Path,
    *,
    library: str,
    target: str,
    not_exported: Mapping[str, Any],
    note: str = "",
    parameters: int = 0,
    code: Sequence[str] = (),
) -> str:
    """Return the text of the card.

    directory: directory of the run, whose run.json and scores.csv the card quotes.
    not_exported: settings by which the run's test sets were translated, and which the export does not have.
    note: remark on the weights.
    parameters: number of parameters of the dense model of the run's pairs, if it is taken out of a mixture; else 0.
    code: lines of a program that translates, by default that of a model with our own tokenizer.
    """
    record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    sparse = bool(record["config"]["model"]["moe"]["num_experts"]) and not parameters
    return "\n".join(
        [
            *_head(run, library),
            *_what(run, record, note, parameters),
            *_use(run, target, library, sparse, code),
            *_training(record),
            *_scores(directory, record, run, not_exported),
            *_further_scores(directory, run),
            *_limits(record, sparse),
        ]
    )


def _head(run: FinishedRun, library: str) -> list[str]:
    languages = sorted({code for pair in run.pairs for code in (pair.src, pair.tgt)})
    return [
        "---",
        f"language: {json.dumps(languages)}",
        "license: other  # that of the training data, below, is where to begin",
        f"library_name: {library}",
        "pipeline_tag: translation",
        "---",
        "",
        f"# {run.name}",
        "",
    ]


def _what(run: FinishedRun, record: Mapping[str, Any], note: str, parameters: int) -> list[str]:
    (system,) = record["systems"]["moe"]
    pairs = ", ".join(pair.name for pair in run.pairs)
    size = f"{system['parameters']:,} parameters"
    if system["active_parameters"] < system["parameters"]:
        size += f", {system['active_parameters']:,} of them active for a token"
    if parameters:
        size = f"{parameters:,} parameters, all that these directions use of a mixture of {system['parameters']:,}"
    return [
        f"A Transformer ({system['size']}) that translates {pairs}; {size}. Exported in float32 from run {run.name} of "
        f"babelshard (recipe {record['recipe']}, commit {run.commit}, model {run.model.stage}/{run.model.key}).",
        *([note] if note else []),
        "",
    ]


def _use(run: FinishedRun, target: str, library: str, sparse: bool, own_code: Sequence[str]) -> list[str]:
    source = next(pair.src for pair in run.pairs if pair.tgt == target)
    lines = own_code or _transformers_code(target, sparse)
    code = {"transformers": lines, "peft": _peft_code(lines), "ctranslate2": _ctranslate2_code(run, target)}[library]
    targets = sorted({pair.tgt for pair in run.pairs})
    lines = ["## Use", "", f"From {source} into {target}:", "", "```python", *code, "```", ""]
    if own_code:
        lines += ["Another source language is another `src_lang`, another target language another token.", ""]
    elif library == "transformers":
        lines += [
            f"Target languages: {', '.join(targets)}; set `tokenizer.tgt_lang` before tokenizing. Without "
            f"`trust_remote_code` the tokenizer gives the same ids, always for {target}.",
            "",
        ]
    if library == "transformers" and sparse:
        lines += [
            "> **`trust_remote_code=True` matters.** transformers 5.0 to 5.23 run only two experts of an NLLB-MoE "
            "model, without a word, and translations are then much worse. modeling_babelshard.py, beside the weights, "
            "runs all of them. transformers 4.57 is right with and without it.",
            "",
        ]
    return lines


def _transformers_code(target: str, sparse: bool) -> list[str]:
    trust = ", trust_remote_code=True"
    return [
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("."{trust})',
        f'model = AutoModelForSeq2SeqLM.from_pretrained("."{trust if sparse else ""})',
        f'tokenizer.tgt_lang = "{target}"',
        'inputs = tokenizer(["A sentence of the source language."], return_tensors="pt", padding=True)',
        "print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))",
    ]


def _peft_code(lines: Sequence[str]) -> list[str]:
    """Return the program for transformers, with BASE for the directory of the model that has no adapters."""
    lines = [line.replace('"."', "BASE") for line in lines]
    place = next(number for number, line in enumerate(lines) if line.startswith("model ="))
    lines.insert(place + 1, 'model = PeftModel.from_pretrained(model, ".")')
    return ["from peft import PeftModel", *lines]


def by_side_code(source: str, tag: int, *, sparse: bool) -> list[str]:
    """Return a program for a model whose tokenizer is that of M2M100 or NLLB.

    source: the tokenizer's own code of the source language.
    tag: id of the token of the target language.
    """
    return [
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained(".", src_lang="{source}")',
        f'model = AutoModelForSeq2SeqLM.from_pretrained("."{", trust_remote_code=True" if sparse else ""})',
        'inputs = tokenizer(["A sentence of the source language."], return_tensors="pt", padding=True)',
        f"output = model.generate(**inputs, forced_bos_token_id={tag})",
        "print(tokenizer.batch_decode(output, skip_special_tokens=True))",
    ]


def _ctranslate2_code(run: FinishedRun, target: str) -> list[str]:
    return [
        "import ctranslate2, sentencepiece",
        "",
        'source = sentencepiece.SentencePieceProcessor(model_file="source.model")',
        'target = sentencepiece.SentencePieceProcessor(model_file="target.model")',
        'translator = ctranslate2.Translator(".")',
        f'pieces = ["<2{target}>", *source.encode("A sentence of the source language.", out_type=str), "</s>"]',
        "(best,) = translator.translate_batch([pieces], beam_size=4)",
        "print(target.decode(best.hypotheses[0]))",
    ]


def _training(record: Mapping[str, Any]) -> list[str]:
    """List each source once, with the rows of all pairs."""
    if IMPORTED in record:
        return [
            "## Training data",
            "",
            f"It was not trained here, but imported from {record[IMPORTED]}, where its data and licence are.",
            "",
        ]
    rows_of: dict[tuple[str, str, str], int] = {}
    for sources in record["sources"].values():
        for source in sources:
            key = source["name"], source["licence"], source["citation"]
            rows_of[key] = rows_of.get(key, 0) + source["kept"]
    rows = [(name, licence, f"{kept:,}", citation) for (name, licence, citation), kept in rows_of.items()]
    (system,) = record["systems"]["moe"]
    return [
        "## Training data",
        "",
        *_table(("source", "licence", "rows", "citation"), rows),
        "",
        f"{system['tokens']:,} target tokens in {system['steps']:,} steps. The licence of the data need not be that of "
        "a model trained on it; look at it before you pass the model on.",
        "",
    ]


def _scores(directory: Path, record: Mapping[str, Any], run: FinishedRun, not_exported: Mapping[str, Any]) -> list[str]:
    decode, path = run.decode, directory / "scores.csv"
    names = {pair.name for pair in run.pairs}
    rows = [row for row in load_scores(path) if row.system == SYSTEM and row.pair in names] if path.is_file() else []
    if not rows:
        return ["## Scores", "", "These directions were not scored.", ""]
    note = (
        f"Of the run's own decoding: beam {decode.beam}, length normalisation {decode.length_norm} with "
        f"{decode.length_penalty}, test sets of {record['corpus']['title']}. Brackets hold 95 % intervals."
    )
    if not_exported:
        settings = ", ".join(f"`decode.{name}={value}`" for name, value in not_exported.items())
        several = (
            " Several models gave those translations together, and this is one of them." if decode.ensemble else ""
        )
        note += f" **They are not the scores of this export**, which does not translate with {settings}.{several}"
    if decode.length_norm != "power":
        note += " Programs that know only the plain power of the length choose now and then another hypothesis."
    return ["## Scores", "", *_score_table(rows), "", note, "", *_signatures(rows), ""]


def _further_scores(directory: Path, run: FinishedRun) -> list[str]:
    """Return the mean scores on each of the run's `score.test_sets`, over the exported directions that it has."""
    names = {pair.name for pair in run.pairs}
    rows_of = {}
    for path in sorted(directory.glob(f"{TEST_SETS}/*/scores.csv")):
        if rows := [row for row in load_scores(path) if row.system == SYSTEM and row.pair in names]:
            rows_of[path.parent.name] = rows
    if not rows_of:
        return []
    metrics = dict.fromkeys(row.metric for rows in rows_of.values() for row in rows)
    cells = []
    for title, rows in rows_of.items():
        scores = ([row.score for row in rows if row.metric == name] for name in metrics)
        means = (decimal(fmean(of_metric)) if of_metric else "" for of_metric in scores)
        cells.append((title, integer(len({row.pair for row in rows})), *means))
    columns = ("test set", "pairs", *(METRICS[name].title for name in metrics))
    return ["Means on other test sets, translated in the same way:", "", *_table(columns, cells), ""]


def _score_table(rows: Sequence[ScoreRow]) -> list[str]:
    """Return a line for each direction, and one of means where there are several; a column for each metric."""
    metrics = list(dict.fromkeys(row.metric for row in rows))
    by_pair: dict[str, dict[str, ScoreRow]] = {}
    for row in rows:
        by_pair.setdefault(row.pair, {})[row.metric] = row
    cells = []
    for pair, scores in by_pair.items():
        about = next(iter(scores.values()))
        of_pair = (scores.get(metric) for metric in metrics)
        texts = [f"{decimal(r.score)} [{decimal(r.ci_low)}, {decimal(r.ci_high)}]" if r else "" for r in of_pair]
        cells.append((pair, integer(about.train_pairs), integer(about.n_test), *texts))
    if len(by_pair) > 1:
        means = [decimal(fmean(row.score for row in rows if row.metric == metric)) for metric in metrics]
        cells.append(("mean", "", "", *means))
    return _table(("pair", "training pairs", "test sentences", *(METRICS[metric].title for metric in metrics)), cells)


def _signatures(rows: Sequence[ScoreRow]) -> list[str]:
    """Return each metric's settings as sacreBLEU writes them, with their pairs where these differ."""
    pairs_of: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        pairs_of.setdefault(row.metric, {}).setdefault(row.signature, []).append(row.pair)
    return [
        f"- {METRICS[metric].title}{' of ' + ', '.join(pairs) if len(by_signature) > 1 else ''}: `{signature}`"
        for metric, by_signature in pairs_of.items()
        for signature, pairs in by_signature.items()
    ]


def _limits(record: Mapping[str, Any], sparse: bool) -> list[str]:
    longest = max(shape["source"] for shape in record["config"]["batch"]["shapes"])
    lines = [
        "## Limits",
        "",
        f"- Sentences, one at a time, of at most {longest} tokens; it has seen nothing longer, and no documents.",
        "- Only the directions above; another language is read as if it were one of them.",
        "- Its domain is that of the training data. It makes things up, in fluent words, most of all outside of that.",
    ]
    if sparse:
        lines.append("- No token is dropped by an expert, so a translation does not depend on what else is in a batch.")
    return [*lines, ""]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    lines = [" | ".join(columns), " | ".join("---" for _ in columns), *(" | ".join(row) for row in cells)]
    return [f"| {line} |" for line in lines]
