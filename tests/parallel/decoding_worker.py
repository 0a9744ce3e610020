"""Translations by processes that share a model's experts, against one process with the whole model.

test_decoding.py runs it. job.json has `ep`, `vocabulary` and `checkpoints` of a model that is mostly experts. The
first process writes the differences to `report.json`. At the end, the last process of each group is asked to stop while
the first one searches.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.decode.config import DecodeConfig
from pipeline.decode.experts.peers import ExpertPeers
from pipeline.decode.job.share import share
from pipeline.decode.model import load_model, set_precision
from pipeline.decode.search.search import Request, search
from pipeline.jobs.device import Place
from pipeline.jobs.process import run_process
from pipeline.jobs.rendezvous import join_job
from pipeline.parallel.layout import Layout
from pipeline.parallel.mesh import Mesh
from pipeline.parallel.partition import expert_parameters, partition
from pipeline.vocab.tokenizer import Vocabulary
from tests.parallel.logical_checkpoint import sharpen
from tests.unit.model.test_transformer import built, random_pairs, small

SENTENCES = 13
SOURCES = [[4, *source] for source, _ in random_pairs(SENTENCES, seed=3).rows]
CASES = {  # decoding, sentences of a batch
    "one in a batch": ({"beam": 4, "precision": "fp64"}, 1),
    "ragged": ({"beam": 4, "precision": "fp64"}, 2),
    "one batch": ({"beam": 4, "precision": "fp64"}, SENTENCES),
    "greedy": ({"beam": 1, "precision": "fp64"}, 5),
    "sampled": ({"search": "sample", "beam": 1, "precision": "fp64"}, 5),
    "float32": ({"beam": 4}, 5),
    # settings for which the rest of a batch matters
    "same batch, bfloat16": ({"beam": 4, "precision": "bf16"}, SENTENCES),
    "same batch, capacity": ({"beam": 2, "precision": "fp64", "capacity_factor": 0.5}, SENTENCES),
}


def config(**changes):
    values = {"length_penalty": 1.0, "max_length_ratio": 1.0, "max_length_extra": 4, **changes}
    return DecodeConfig(**values)


def sharp(precision):
    model = built(small(num_experts=4)).eval()
    sharpen(model)
    set_precision(model, precision)
    return model


def usage(model):
    """Return counters of the rows of each expert, by layer, which grow with every pass."""
    sums = {name: [0] * moe.num_experts for name, moe in model.moe_layers().items()}

    def note(name, _experts, args):
        sums[name] = [a + b for a, b in zip(sums[name], args[1].tolist(), strict=True)]

    for name, moe in model.moe_layers().items():
        moe.experts.register_forward_pre_hook(partial(note, name))
    return sums


def translate(model, settings, *, size, order, place, peers=None):
    """Return the hypotheses of the sentences in this process's batches, by sentence."""
    batches = [order[start : start + size] for start in range(0, SENTENCES, size)]
    hypotheses = {}
    for batch in share(batches, place, empty=None if peers is None else []):
        requests = [Request(source=SOURCES[number], number=number) for number in batch]
        hypotheses.update(zip(batch, search(model, requests, settings, peers), strict=True))
    return hypotheses


def gathered(value):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, value)
    return everybody


def compare(mesh, peers, place, case):
    """Return the differences between processes that share experts and one with all of them, in other batches."""
    values, size = CASES[case]
    settings = config(**values)
    whole, cut = sharp(settings.precision), sharp(settings.precision)
    partition(cut, mesh)
    expected_usage, usage_here = usage(whole), usage(cut)
    forward, alone = list(range(SENTENCES)), replace(place, rank=0, world=1)
    order = forward if case.startswith("same batch") else forward[::-1]
    expected = translate(whole, settings, size=SENTENCES, order=forward, place=alone)
    parts = gathered(translate(cut, settings, size=size, order=order, place=place, peers=peers))
    everywhere = gathered(usage_here)
    assert sorted(number for part in parts for number in part) == forward
    actual = {number: best for part in parts for number, best in part.items()}
    routed = {
        layer: [sum(rows) for rows in zip(*(sums[layer] for sums in everywhere), strict=True)] for layer in usage_here
    }
    return {
        "other": [n for n in forward if actual[n][0].tokens != expected[n][0].tokens],
        "score": max(abs(actual[n][0].score - expected[n][0].score) for n in forward),
        "routed": routed,
        "routed by one": expected_usage,
        "idle": sum(not part for part in parts),
    }


def loading(mesh, values):
    """Return the memory that experts took while they were loaded, relative to all of them, and wrong tensors."""
    vocabulary, settings = Vocabulary.load(Path(values["vocabulary"])), config(beam=4)
    load = partial(
        load_model, Path(values["checkpoints"]), vocabulary, longest=8, config=settings, device=torch.device("cpu")
    )
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory()
    cut = load(mesh=mesh)
    after, whole = memory(), load()
    names = expert_parameters(whole)
    sizes = [parameter.nbytes for name, parameter in whole.named_parameters() if name in names]
    expected = {
        name: parameter.chunk(mesh.size("expert"))[mesh.devices.get_local_rank("expert")]
        if name in names
        else parameter
        for name, parameter in whole.named_parameters()
    }
    wrong = [name for name, parameter in cut.named_parameters() if not torch.equal(parameter, expected[name])]
    return {
        "wrong": wrong,
        "tensors": len(expected),
        "peak": (after["VmHWM"] - before["VmRSS"]) / sum(sizes),
        "kept": (after["RssAnon"] - before["RssAnon"]) / sum(sizes),
    }


def memory():
    """Return the memory of this process in bytes, by the kernel's names."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}


def work(values, stop):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    join_job(device=device, timeout=60, met=partial(stop.watch, limit=30))
    torch.set_num_threads(1)
    mesh = Mesh.build(Layout.gshard(dist.get_world_size(), values["ep"]), device)
    place = Place(rank=rank, world=world, on_host=world, device=device)
    peers = ExpertPeers(mesh, stop=lambda: bool(stop), title="decoding")
    differences = {case: compare(mesh, peers, place, case) for case in CASES}
    loads = gathered(loading(mesh, values))
    if rank == 0:
        report = {"differences": differences, "loads": loads, "source tokens": sum(map(len, SOURCES))}
        Path(sys.argv[1]).with_name("report.json").write_text(json.dumps(report))
    member = mesh.devices.get_local_rank("expert")
    if member == values["ep"] - 1:
        signal.raise_signal(signal.SIGTERM)
    cut = sharp("fp32")
    partition(cut, mesh)
    search(cut, [Request(source=[4, 9, 2])] if member == 0 else [], config(beam=4), peers)
    raise AssertionError("one process was asked to stop, and this one continued")


if __name__ == "__main__":
    run_process(work)
