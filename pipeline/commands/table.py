"""Every command of `python -m pipeline`, from which dispatch, `--help`, `make help` and the Makefile's settings follow.

A new command is one entry of COMMANDS and a module in `pipeline/commands`. A module is imported when its command runs.
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Overrides that words in capitals stand for: {value} is the text as it is, {text} a string of Hydra, and {list} the
# words between spaces and commas, put together by commas.
RUN = {
    "RECIPE": "recipes={value}",
    "CORPUS": "corpus={value}",
    "CORPUS_PATH": "corpus.path={text}",
    "CORPUS_ADD": "corpus.add=[{list}]",
    "NAME": "name={text}",
    "LANG_PAIRS": "pairs=[{list}]",
    "RUNTIME": "runtime={value}",
    "LAYOUT": "layout={value}",
}
SWEEP = {
    "EXPERIMENT": "experiment={value}",
    **RUN,
    "RECIPE": "recipes={list}",
    "EXPERTS": "model.moe.num_experts={list}",
    "LAYERS": "layers={list}",
    "GATE": "gate={list}",
    "SEEDS": "train.seed={list}",
    "LAUNCHER": "hydra/launcher={value}",
}
FINISHED = {"NAME": "run={text}", "RUNTIME": "runtime={value}"}
NEW_CORPUS = {
    **FINISHED,
    "LANG_PAIRS": "pairs=[{list}]",
    "TEXT": "text={text}",
    "LICENCE": "licence={text}",
    "CITATION": "citation={text}",
    "OUT": "out={text}",
}
PLAN = {
    "RECIPE": "recipes=[{list}]",
    "DEVICES": "devices={value}",
    "DEVICE": "device={value}",
    "LAYOUT": "layout={value}",
    "MP": "mp={value}",
    "EP": "ep={value}",
    "ZERO": "zero_stage={value}",
    "RECOMPUTE": "recompute={value}",
    "SEARCH": "search=true",
    "FORMAT": "format={value}",
    "OUT": "out={text}",
}
_RUN_EXAMPLE = 'RECIPE=demo LANG_PAIRS="de-en tr-en" (or all) NAME=mine RUNTIME=gpu LAYOUT=model CORPUS=path/to/dir'
_CORPUS_EXAMPLE = "NAME=finished LANG_PAIRS=en-de TEXT=mono.en LICENCE=CC0-1.0 OUT=data/mine"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    help: what it does, for the list of commands.
    load: `module:function` that turns overrides into the configuration, whose class is the command's schema.
    run: `module:function` that is called with the configuration.
    settings: override for each word in capitals that the command knows.
    example: its settings in use.
    saves: whether the same command continues from what an interrupted one did.
    """

    name: str
    help: str
    load: str
    run: str
    settings: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    saves: bool = True

    def overrides(self, words: Sequence[str]) -> list[str]:
        """Replace `NAME=value` words by the overrides that they stand for, which come before all others.

        A word of another command is ignored, since `make` passes on what the environment has. Raises ValueError for a
        word that no command knows.
        """
        settings: dict[str, str] = {}
        plain: list[str] = []
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or not re.fullmatch(r"[A-Z_]+", name):
                plain.append(word)
            elif not any(name in command.settings for command in COMMANDS):
                from pipeline.spelling import suggestion

                raise ValueError(f"setting {name} does not exist{suggestion(name, self.settings)}")
            elif value:
                settings[name] = value
        if "EXPERIMENT" in self.settings and "EXPERIMENT" in settings:  # it names its own recipes
            settings.pop("RECIPE", None)
        return [*(_fill(form, settings[name]) for name, form in self.settings.items() if name in settings), *plain]

    def __call__(self, words: Sequence[str]) -> None:
        """Load the configuration and run the command. Raises ValueError for words that it does not understand."""
        config = _function(self.load)(self.overrides(words))
        _function(self.run)(config)


COMMANDS = (
    Command(
        name="train",
        help="corpus to report: fetch, clean, vocab, encode, train, translate, baselines, score, report",
        load="pipeline.config:load_config",
        run="pipeline.commands.train:train",
        settings=RUN,
        example=_RUN_EXAMPLE,
    ),
    Command(
        name="sweep",
        help="many runs that differ in a few keys, at equal data and budget, and their page (docs/sweeps.md)",
        load="pipeline.sweep.config:load_sweep",
        run="pipeline.sweep.command:run_sweep",
        settings=SWEEP,
        example='EXPERTS="4 8 16" LAYERS="6 12" GATE="top2 top1" SEEDS="1 2" LAUNCHER=joblib or EXPERIMENT=freesoft38',
    ),
    Command(
        name="data",
        help="the stages before training alone, and what they did to the data as a table, a plot and a page",
        load="pipeline.config:load_config",
        run="pipeline.commands.data:show_data",
        settings=RUN,
        example=_RUN_EXAMPLE,
    ),
    Command(
        name="baselines",
        help="the bilingual models of a run alone, with their search and translations (docs/experiment.md)",
        load="pipeline.config:load_config",
        run="pipeline.commands.baselines:train_baselines",
        settings=RUN,
        example=_RUN_EXAMPLE,
    ),
    Command(
        name="status",
        help="where a run or a sweep stands, and how long it will take; WATCH=1 keeps showing it (docs/records.md)",
        load="pipeline.sweep.show:load_show",
        run="pipeline.sweep.show:show",
        settings={"NAME": "run={text}", "WATCH": "watch=true"},
        example="NAME=mine WATCH=1",
        saves=False,
    ),
    Command(
        name="backtranslate",
        help="monolingual text, translated by a finished run, as a corpus (docs/backtranslation.md)",
        load="pipeline.commands.backtranslate:load_backtranslation",
        run="pipeline.commands.backtranslate:back_translate",
        settings=NEW_CORPUS,
        example=_CORPUS_EXAMPLE,
    ),
    Command(
        name="translate",
        help="lines from standard input to standard output, by a finished run (docs/translate.md)",
        load="pipeline.commands.translate:load_translate",
        run="pipeline.commands.translate:translate",
        settings={**FINISHED, "PAIR": "pair={text}"},
        example="make -s translate NAME=finished PAIR=de-en < in.de > out.en",
        saves=False,
    ),
    Command(
        name="serve",
        help="a finished run behind HTTP, with a page to try it in a browser (docs/serve.md)",
        load="pipeline.serve.config:load_serve",
        run="pipeline.serve.server:serve",
        settings=FINISHED,
        example='NAME=finished ARGS="port=8001"',
        saves=False,
    ),
    Command(
        name="export",
        help="a finished run as a model of transformers or CTranslate2 (docs/export.md)",
        load="pipeline.export.config:load_export",
        run="pipeline.export.command:export_run",
        settings={"NAME": "run={text}", "OUT": "out={text}", "FORMAT": "format={value}"},
        example="NAME=finished OUT=data/artifacts/mine FORMAT=huggingface (or ctranslate2)",
    ),
    Command(
        name="prune",
        help="the experts that pairs of a finished run use, and scores before and after (docs/pruning.md)",
        load="pipeline.commands.prune:load_pruning",
        run="pipeline.commands.prune:prune",
        settings={**FINISHED, "PAIR": "pairs=[{list}]", "KEEP": "keep={value}"},
        example="NAME=finished PAIR=de-en KEEP=0.5",
    ),
    Command(
        name="distill",
        help="source text, translated by a finished run, as a corpus for a student (docs/distillation.md)",
        load="pipeline.commands.distill:load_distillation",
        run="pipeline.commands.distill:distill",
        settings=NEW_CORPUS,
        example=_CORPUS_EXAMPLE,
    ),
    Command(
        name="plan",
        help="memory, time and cost of a recipe on devices that need not be there (docs/plan.md)",
        load="pipeline.plan.config:load_plan",
        run="pipeline.plan.command:plan",
        settings=PLAN,
        example="RECIPE=gshard/moe_2048e_36l DEVICES=256 DEVICE=h100 LAYOUT=model MP=2 EP=64 ZERO=2 RECOMPUTE=layers",
        saves=False,
    ),
    Command(
        name="config",
        help="print the resolved configuration of a run and stop",
        load="pipeline.config:load_config",
        run="pipeline.commands.config:show_config",
        settings=RUN,
        example=_RUN_EXAMPLE,
    ),
    Command(
        name="verify",
        help="the same batches on 1, 2 and 4 processes against plain torch (docs/verify.md)",
        load="pipeline.verify.command:parse",
        run="pipeline.verify.command:verify",
    ),
)


def find_command(name: str) -> Command:
    """Return the command of this name. Raises ValueError with the nearest names."""
    for command in COMMANDS:
        if command.name == name:
            return command
    from pipeline.spelling import suggestion

    raise ValueError(f"target {name} does not exist{suggestion(name, [command.name for command in COMMANDS])}")


def summaries(prefix: str) -> str:
    """Return a line for each command. prefix: what a user writes before its name."""
    return "\n".join(f"  {prefix + command.name:<20}  {command.help}" for command in COMMANDS)


def examples() -> str:
    """Return the settings of the commands in use; commands with the same settings share a line."""
    names: dict[str, list[str]] = {}
    for command in COMMANDS:
        names.setdefault(command.example, []).append(command.name)
    return "\n".join(f"  {', '.join(same)}:\n    {example}" for example, same in names.items() if example)


def _function(place: str) -> Callable[[Any], Any]:
    module, _, name = place.partition(":")
    function: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    return function


def _fill(form: str, value: str) -> str:
    text = value.replace('\\"', '\\\\"').replace('"', '\\"').replace("${", "\\${")  # Hydra would interpolate ${...}
    filled = {"{value}": value, "{text}": f'"{text}"', "{list}": ",".join(value.replace(",", " ").split())}
    return re.sub(r"\{(value|text|list)\}", lambda match: filled[match[0]], form)
