"""Run exported models in other programs, for tests: `python -m tests.transformers_worker < cases > answers`.

Runs in an environment that has transformers. cases: a list; of each model `directory`, `remote` (trust the code beside
the weights), `sources` (token ids), `targets` (of the first sources, with `</s>`), `generate` (arguments), `texts` by
language. With `ctranslate2` a case is a directory and sources in pieces.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import __version__ as tokenizers_version
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, __version__

PAD, EOS = 1, 2


def answer(case):
    directory, remote = case["directory"], case["remote"]
    model, info = AutoModelForSeq2SeqLM.from_pretrained(directory, trust_remote_code=remote, output_loading_info=True)
    model.eval()
    settings = json.loads(Path(directory, "config.json").read_text())
    source, mask = padded(case["sources"])
    count = len(case["targets"])
    target, _ = padded([[EOS, *ids[:-1]] for ids in case["targets"]])
    arguments = {"input_ids": source, "attention_mask": mask}
    with torch.no_grad():
        logits = model(input_ids=source[:count], attention_mask=mask[:count], decoder_input_ids=target).logits
        output = model.generate(**arguments, return_dict_in_generate=True, output_scores=True, **case["generate"])
    tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=remote)
    return {
        "class": [kind.__name__ for kind in type(model).__mro__],
        "loading": {name: sorted(map(str, keys)) for name, keys in info.items() if name.endswith("_keys")},
        "unknown": sorted(settings.keys() - type(model.config)().to_dict().keys()),
        "logits": [rows[: len(ids)].tolist() for rows, ids in zip(logits, case["targets"], strict=True)],
        "generated": [trimmed(row) for row in output.sequences.tolist()],
        "scores": output.sequences_scores.tolist(),
        "decoded": tokenizer.batch_decode(output.sequences, skip_special_tokens=True),
        "ids": {language: encoded(tokenizer, language, texts) for language, texts in case["texts"].items()},
    }


def encoded(tokenizer, language, texts):
    if tokenizer.__class__.__name__ == "BabelshardTokenizer":
        tokenizer.tgt_lang = language
    return tokenizer(texts).input_ids


def padded(rows):
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def trimmed(row):
    """Without the `</s>` that a decoder starts with, and those and the padding at the end."""
    body = row[1:]
    return body[: body.index(EOS)] if EOS in body else body


def translated(case):
    import ctranslate2

    if case["convert"]:
        ctranslate2.converters.TransformersConverter(case["convert"]).convert(case["directory"])
    else:
        from pipeline.__main__ import main

        assert main(case["command"]) == 0
    translator = ctranslate2.Translator(case["directory"], compute_type="float32", intra_threads=1)
    results = translator.translate_batch(case["sources"], return_scores=True, **case["arguments"])
    return {
        "hypotheses": [result.hypotheses[0] for result in results],
        "scores": [result.scores[0] for result in results],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    answers = [translated(case) if "arguments" in case else answer(case) for case in json.load(sys.stdin)]
    print(json.dumps({"versions": [__version__, tokenizers_version], "answers": answers}))
