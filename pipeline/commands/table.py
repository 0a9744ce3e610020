"""Every command of `python -m pipeline`, from which dispatch, `--help`, `make help` and the Makefile's settings follow.

A new command is one entry of COMMANDS and a module in `pipeline/commands`. A module is imported when its command runs.
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.commands.words import FINISHED, NEW_CORPUS, PLAN, RUN, SWEEP, SWITCH, WATCHED, fill

_RUN_EXAMPLE = 'RECIPE=demo LANG_PAIRS="de-en tr-en" (or all) NAME=mine RUNTIME=gpu LAYOUT=model CORPUS=path/to/dir'
_CORPUS_EXAMPLE = "NAME=finished LANG_PAIRS=en-de TEXT=mono.en LICENCE=CC0-1.0 OUT=corpora/mine"


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command.

    help: what it does, for the list of commands.
    load: `module:function` that turns overrides into the configuration, whose class is the command's schema.
    run: `module:function` that is called with the configuration.
    settings: override for each word in capitals that the command knows.
    example: its settings in use.
    saves: whether the same command continues from what an interrupted one did.
    keys: the file of configs/ with its keys, where it is not named after the command; `config` has those of a run.
    """

    name: str
    help: str
    load: str
    run: str
    settings: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    saves: bool = True
    keys: str = ""

    @property
    def file(self) -> str:
        """Name of the file in configs/ with the command's keys. Without such a file its dataclass has all of them."""
        return self.keys or self.name

    def overrides(self, words: Sequence[str]) -> list[str]:
        """Replace `NAME=value` words by the overrides that they stand for, which come before all others.

        A word `NAME?=value`, which `make` writes for a default and for a variable of the environment, is ignored where
        this command has no such setting. Raises ValueError for another word that it does not have.
        """
        settings: dict[str, str] = {}
        plain: list[str] = []
        defaults: set[str] = set()
        for word in ("VERBOSE=1" if word in ("-v", "--verbose") else word for word in words):
            name, equals, value = word.partition("=")
            is_default = name.endswith("?")
            name = name.removesuffix("?")
            if not equals or not re.fullmatch(r"[A-Z_]+", name):
                plain.append(word)
            elif name in self.settings and value:
                settings[name] = value
                (defaults.add if is_default else defaults.discard)(name)
            elif name not in self.settings and not is_default:
                raise ValueError(unread(name, self.name, list(self.settings)))
        if {"EXPERIMENT", "RECIPE"} <= {*settings} and "EXPERIMENT" in self.settings:
            if "RECIPE" not in defaults:
                raise ValueError(
                    f"EXPERIMENT={settings['EXPERIMENT']} names its own recipes; leave out RECIPE={settings['RECIPE']}"
                )
            settings.pop("RECIPE")
        for name in (name for name, form in self.settings.items() if "{switch}" in form and name in settings):
            if settings[name] not in SWITCH:
                raise ValueError(f"{name}={settings[name]} is neither 1 nor 0")
        return [*(fill(form, settings[name]) for name, form in self.settings.items() if name in settings), *plain]

    def __call__(self, words: Sequence[str]) -> None:
        """Load the configuration and run the command. Raises ValueError for words that it does not understand."""
        config = function(self.load)(self.overrides(words))
        function(self.run)(config)


COMMANDS = (
    Command(
        name="train",
        keys="config",
        help="corpus to report: fetch, clean, vocab, encode, train, translate, baselines, score, report",
        load="pipeline.config:load_config",
        run="pipeline.commands.train:train",
        settings=WATCHED,
        example=f"{_RUN_EXAMPLE} VERBOSE=1",
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
        keys="config",
        help="the stages before training alone, and what they did to the data as a table, a plot and a page",
        load="pipeline.config:load_config",
        run="pipeline.commands.data:show_data",
        settings=WATCHED,
        example=f"{_RUN_EXAMPLE} VERBOSE=1",
    ),
    Command(
        name="baselines",
        keys="config",
        help="the bilingual models of a run alone, with their search and translations (docs/experiment.md)",
        load="pipeline.config:load_config",
        run="pipeline.commands.baselines:train_baselines",
        settings=WATCHED,
        example=f"{_RUN_EXAMPLE} VERBOSE=1",
    ),
    Command(
        name="runs",
        help="a table of the runs: state, recipe, pairs, BLEU, age, size on the disk alone and in all (docs/files.md)",
        load="pipeline.sweep.runs:load_runs",
        run="pipeline.sweep.runs:show_runs",
        saves=False,
    ),
    Command(
        name="remove",
        help="delete a run or a sweep, and what no other run uses of its artifacts; DRY=1 lists only (docs/files.md)",
        load="pipeline.sweep.remove:load_remove",
        run="pipeline.sweep.remove:remove",
        settings={"NAME": "run={text}", "UNUSED": "unused={switch}", "DRY": "dry={switch}"},
        example="NAME=mine DRY=1 (or UNUSED=1: the artifacts that no run uses)",
    ),
    Command(
        name="status",
        help="where a run or a sweep stands, by default the last one; WATCH=1 keeps showing it (docs/records.md)",
        load="pipeline.sweep.show:load_show",
        run="pipeline.sweep.show:show",
        settings={"NAME": "run={text}", "WATCH": "watch={switch}"},
        example="NAME=mine WATCH=1",
        saves=False,
    ),
    Command(
        name="backtranslate",
        keys="backtranslation",
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
        name="evaluate",
        help="further test sets, translated and scored by a finished run and its baselines (docs/scoring.md)",
        load="pipeline.commands.evaluate:load_evaluation",
        run="pipeline.commands.evaluate:evaluate",
        settings={
            **FINISHED,
            "CORPUS": "corpus={value}",
            "CORPUS_PATH": "corpus.path={text}",
            "LANG_PAIRS": "pairs=[{list}]",
        },
        example='NAME=finished CORPUS=path/to/dir LANG_PAIRS="de-en tr-en" (by default all of the run)',
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
        settings={"NAME": "run={text}", "PAIR": "pairs=[{list}]", "OUT": "out={text}", "FORMAT": "format={value}"},
        example="NAME=finished OUT=exports/mine FORMAT=huggingface (or ctranslate2)",
    ),
    Command(
        name="import",
        help="M2M100, NLLB-200 or NLLB-MoE of transformers as a finished run (docs/import.md)",
        load="pipeline.imports.config:load_import",
        run="pipeline.imports.command:import_checkpoint",
        settings={"FROM": "source={text}", "NAME": "name={text}", "LANG_PAIRS": "pairs=[{list}]"},
        example='FROM=path/to/nllb-200-distilled-600M NAME=nllb LANG_PAIRS="de-en en-de"',
    ),
    Command(
        name="prune",
        keys="pruning",
        help="the experts that pairs of a finished run use, and scores before and after (docs/pruning.md)",
        load="pipeline.commands.prune:load_pruning",
        run="pipeline.commands.prune:prune",
        settings={**FINISHED, "PAIR": "pairs=[{list}]", "KEEP": "keep={value}", "REPLACE": RUN["REPLACE"]},
        example="NAME=finished PAIR=de-en KEEP=0.5 REPLACE=1",
    ),
    Command(
        name="distill",
        keys="distillation",
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


def unread(name: str, target: str, settings: Sequence[str]) -> str:
    """Return the message for a setting that a target does not have: the nearest ones, or all of them.

    settings: those that the target has.
    """
    from pipeline.spelling import suggestion

    owners = [command for command in COMMANDS if name in command.settings]
    named = f", which is one of {', '.join([command.name for command in owners][:3])}" if owners else ""
    key = owners[0].settings[name].partition("=")[0] if owners else ""
    if "RECIPE" in settings and key.split(".")[0] in ("model", "gate", "train"):
        return f'{target} has no setting {name}{named}; it stands for the key {key}, as in ARGS="{key}=..."'
    return f"{target} has no setting {name}{named}{suggestion(name, settings, listing=f'{target} has')}"


def summaries(prefix: str) -> str:
    """Return a line for each command. prefix: what a user writes before its name."""
    return "\n".join(f"  {prefix + command.name:<20}  {command.help}" for command in COMMANDS)


def examples() -> str:
    """Return the settings of the commands in use; commands with the same settings share a line."""
    names: dict[str, list[str]] = {}
    for command in COMMANDS:
        names.setdefault(command.example, []).append(command.name)
    return "\n".join(f"  {', '.join(same)}:\n    {example}" for example, same in names.items() if example)


def function(place: str) -> Callable[[Any], Any]:
    """Import a `module:function`."""
    module, _, name = place.partition(":")
    function: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    return function
