"""Load adapters by peft itself, in an environment that has it: `python -m tests.peft_worker BASE ADAPTERS MERGED`.

Prints the largest difference of the logits of base model and adapters to those of the merged model, and to those of the
base model alone.
"""

import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM

SOURCES, TARGETS = torch.tensor([[4, 40, 200, 61, 2], [5, 7, 90, 1500, 2]]), torch.tensor([[2, 33, 8], [2, 700, 19]])


def logits_of(model):
    with torch.no_grad():
        return model.eval()(input_ids=SOURCES, decoder_input_ids=TARGETS).logits


def main(base, adapters, merged):
    alone, whole = (
        logits_of(AutoModelForSeq2SeqLM.from_pretrained(path, trust_remote_code=True)) for path in (base, merged)
    )
    model = AutoModelForSeq2SeqLM.from_pretrained(base, trust_remote_code=True)
    adapted = logits_of(PeftModel.from_pretrained(model, adapters))
    differences = {name: (adapted - other).abs().max().item() for name, other in (("merged", whole), ("base", alone))}
    print(json.dumps(differences))


main(*sys.argv[1:])
