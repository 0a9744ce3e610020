"""docs/serve.md: its commands compose, and its keys have the defaults that it says."""

import re
from operator import attrgetter

from pipeline.config import ROOT
from pipeline.decode.job.replica import runtime_of_replica
from pipeline.serve.config import load_serve
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`.+?) \| (.+?) \|.*\|$", TEXT[TEXT.index("## Which settings are there?") :], re.MULTILINE)


def test_the_commands_compose():
    (command,) = re.findall(r"^make (.+)$", TEXT, re.MULTILINE)
    config = load_serve(overrides_of("serve", f"make {command}"))
    assert f"`http://{config.host}:{config.port}`, where `runs/{config.run}` translates" in TEXT
    (arguments,) = re.findall(r'^`(ARGS="[^`]+")`', TEXT, re.MULTILINE)
    config = load_serve(overrides_of("serve", f"make serve NAME=demo RUNTIME=gpu {arguments}"))
    assert (config.run, config.port, config.limits.seconds, config.runtime.device) == ("demo", 8001, 10, "cuda")


def test_a_model_that_is_too_large_is_cut_over_as_many_processes_as_it_says():
    (arguments,) = re.findall(r'^With `(ARGS="[^`]+")` four processes', TEXT, re.MULTILINE)
    config = load_serve(overrides_of("serve", f"make serve NAME=demo {arguments}"))
    replica = runtime_of_replica(config.runtime)
    assert (replica.processes, config.runtime.processes, replica.decode_experts) == (4, 4, "sharded")


def test_the_keys_have_the_defaults_of_the_table():
    config = load_serve(["run=demo"])
    checked = 0
    for named, values in ROWS:
        keys = re.findall(r"`([a-z_.]+)`", named)
        group = keys[0].rpartition(".")[0]
        if keys == ["decode.beam"]:
            continue
        paths = [key if "." in key or not group else f"{group}.{key}" for key in keys]
        defaults = [value.strip("`") for value in re.split(r", ", values)]
        for path, documented in zip(paths, defaults, strict=True):
            default = attrgetter(path)(config)
            assert documented.replace(",", "") == (default if isinstance(default, str) else f"{default:.12g}"), path
            checked += 1
    assert checked == 16
