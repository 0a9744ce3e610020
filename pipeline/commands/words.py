"""The words in capitals that commands take, such as NAME=mine, and the overrides that they stand for."""

import re

# Overrides that words in capitals stand for: {value} is the text as it is, {text} a string of Hydra, and {list} the
# words between spaces and commas, put together by commas, and {switch} is true for 1 and false for 0.
RUN = {
    "RECIPE": "recipes={value}",
    "CORPUS": "corpus={value}",
    "CORPUS_PATH": "corpus.path={text}",
    "CORPUS_ADD": "corpus.add=[{list}]",
    "NAME": "name={text}",
    "LANG_PAIRS": "pairs=[{list}]",
    "RUNTIME": "runtime={value}",
    "LAYOUT": "layout={value}",
    "REPLACE": "runtime.replace={switch}",
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
WATCHED = {**RUN, "VERBOSE": "runtime.verbose={switch}"}
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
    "SEARCH": "search={switch}",
    "FORMAT": "format={value}",
    "OUT": "out={text}",
}
SWITCH = {"1": "true", "0": "false"}


def fill(form: str, value: str) -> str:
    """Return the override that a word with this value stands for. form: as above."""
    text = value.replace('\\"', '\\\\"').replace('"', '\\"').replace("${", "\\${")  # Hydra would interpolate ${...}
    filled = {"{value}": value, "{text}": f'"{text}"', "{list}": ",".join(value.strip("[] ").replace(",", " ").split())}
    filled["{switch}"] = SWITCH.get(value, value)
    return re.sub(r"\{(value|text|list|switch)\}", lambda match: filled[match[0]], form)
