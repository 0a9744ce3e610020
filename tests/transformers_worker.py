"""What transformers makes of an exported model, for tests: `python transformers_worker.py DIRECTORY < cases > answers`.

Runs in an environment that has transformers, and imports nothing of ours. cases: sources (token ids), targets (of the
same number, `</s>` at the end), generate (arguments), texts, by language; remote: trust the code beside the weights.
"""

import json
import sys

import torch
from tokenizers import __version__ as tokenizers_version
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, __version__

PAD, EOS = 1, 2


def answers(directory: str, cases: dict) -> dict:
    model, info = AutoModelForSeq2SeqLM.from_pretrained(
        directory, trust_remote_code=cases["remote"], output_loading_info=True
    )
    model.eval()
    source, mask = padded(cases["sources"])
    target, _ = padded([[EOS, *ids[:-1]] for ids in cases["targets"]])
    with torch.no_grad():
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        found = model.generate(
            input_ids=source,
            attention_mask=mask,
            return_dict_in_generate=True,
            output_scores=True,
            **cases["generate"],
        )
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=cases["remote"])
    ids = {}
    for language, texts in cases["texts"].items():
        if cases["remote"]:
            tokenizer.tgt_lang = language
        ids[language] = tokenizer(texts).input_ids if texts else []
    return {
        "versions": [__version__, tokenizers_version],
        "class": type(model).__name__,
        "bases": [kind.__name__ for kind in type(model).__mro__],
        "tokenizer": type(tokenizer).__name__,
        "loading": {name: sorted(map(str, info[name])) for name in ("missing_keys", "unexpected_keys")},
        "mismatched": [str(key) for key in info["mismatched_keys"]],
        "logits": [rows[: len(ids)].tolist() for rows, ids in zip(logits, cases["targets"], strict=True)],
        "generated": [trimmed(row) for row in found.sequences.tolist()],
        "scores": found.sequences_scores.tolist(),
        "decoded": tokenizer.batch_decode(found.sequences, skip_special_tokens=True),
        "ids": ids,
    }


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def trimmed(row: list[int]) -> list[int]:
    """Without the `</s>` that a decoder starts with and what follows the last one."""
    body = row[1:]
    return body[: body.index(EOS)] if EOS in body else [index for index in body if index != PAD]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(answers(sys.argv[1], json.load(sys.stdin))))
