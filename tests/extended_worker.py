"""Read exports of imports with new languages by transformers: `python -m tests.extended_worker < case`.

Runs in an environment that has transformers. case: `fast`, directories of checkpoints that get a tokenizer.json; and
`exports`, by name: `directory`, and `directions`, each with `source` and `target`, tokens of languages, and `texts`.
The answer has, for each export, the ids of the texts by both tokenizers, the special tokens, and for each direction
what tests.checkpoint_worker answers.
"""

import json
import sys

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.checkpoint_worker import answer


def main():
    case = json.load(sys.stdin)
    for directory in case.get("fast", ()):
        AutoTokenizer.from_pretrained(directory, use_fast=True).save_pretrained(directory)
    print(json.dumps({name: answers(**export) for name, export in case.get("exports", {}).items()}))


def answers(directory, directions):
    tokenizers = {kind: AutoTokenizer.from_pretrained(directory, use_fast=kind == "fast") for kind in ("fast", "slow")}
    model = AutoModelForSeq2SeqLM.from_pretrained(directory, trust_remote_code=True).eval()
    return {
        "tokenizers": {kind: described(tokenizer, directions) for kind, tokenizer in tokenizers.items()},
        "rows": model.get_input_embeddings().weight.shape[0],
        "directions": [
            answer(model, tokenizers["slow"], {way["source"]: way["texts"]}, way["target"]) for way in directions
        ],
    }


def described(tokenizer, directions):
    ids, names = [], []
    for way in directions:
        tokenizer.src_lang = way["source"]
        ids.append([tokenizer(text).input_ids for text in way["texts"]])
        names += [way["source"], way["target"]]
    return {
        "class": type(tokenizer).__name__,
        "ids": ids,
        "tags": {name: tokenizer.convert_tokens_to_ids(name) for name in names},
        "special": tokenizer.all_special_tokens,
        "length": len(tokenizer),
        "plain": tokenizer("a").input_ids,
        "space at the end": tokenizer("a ").input_ids,
        "decoded": [tokenizer.decode([2, *row], skip_special_tokens=True) for row in ids[0]],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
