"""Make random checkpoints with transformers and translate with them: `python -m tests.checkpoint_worker < case`.

Runs in an environment that has transformers. case: `root`, a directory; `corpus`, a file of text; `questions`, texts by
own code of their language, and `target`, code of the language to translate into. The answer has, for each kind of
checkpoint, the ids of the texts, the translations by greedy and beam search, and the logits of the greedy ones. With
`full` it makes one checkpoint of the size of nllb-200-distilled-600M, and answers nothing.
"""

import json
import sys
from pathlib import Path

import sentencepiece
import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    NllbMoeConfig,
    NllbMoeForConditionalGeneration,
    NllbTokenizer,
)

SIZES = {
    "d_model": 32,
    "encoder_layers": 4,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 128,
    "scale_embedding": True,
}
MOE = {"num_experts": 6, "encoder_sparse_step": 2, "decoder_sparse_step": 2, "expert_capacity": 64}
SEARCH = {"max_new_tokens": 14, "length_penalty": 1.0, "early_stopping": True, "suppress_tokens": [0, 1]}


def pieces(root, corpus, kind):
    """Train a SentencePiece model as NLLB and M2M100 have it: <unk> <s> </s>, then pieces."""
    prefix = root / f"spm-{kind}"
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=str(prefix), model_type=kind, vocab_size=600, character_coverage=1.0, minloglevel=2
    )
    return str(prefix) + ".model"


def nllb_tokenizer(root, corpus):
    return NllbTokenizer(pieces(root, corpus, "bpe"))


def m2m_tokenizer(root, corpus):
    """Number the pieces in another order than SentencePiece does, and add one that it does not know."""
    model = pieces(root, corpus, "unigram")
    spm = sentencepiece.SentencePieceProcessor(model_file=model)
    names = sorted(spm.id_to_piece(index) for index in range(3, len(spm)))
    vocabulary = {name: index for index, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *names, "never-a-piece"])}
    path = root / "vocab.json"
    path.write_text(json.dumps(vocabulary))
    return M2M100Tokenizer(str(path), model)


def randomize(model):
    """Give all parameters values of their own, and let translations differ and end."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif "shared" in name or name.endswith("bias"):
                parameter.copy_(0.1 * torch.randn_like(parameter))
            else:
                of_source = "encoder_attn" in name or "cross_attention" in name
                parameter.copy_(torch.randn_like(parameter) * (4 if of_source else 2) / SIZES["d_model"] ** 0.5)
        model.model.decoder.layer_norm.weight.mul_(5)
        model.model.shared.weight[2].mul_(1.7)
    return model.eval()


def checkpoints(root, corpus):
    nllb, m2m = nllb_tokenizer(root, corpus), m2m_tokenizer(root, corpus)
    dense = randomize(M2M100ForConditionalGeneration(M2M100Config(**SIZES, vocab_size=len(nllb) + 2)))
    old = randomize(M2M100ForConditionalGeneration(M2M100Config(**SIZES, vocab_size=len(m2m) + 108)))
    moe = randomize(NllbMoeForConditionalGeneration(NllbMoeConfig(**SIZES, **MOE, vocab_size=len(nllb) + 2)))
    yield "nllb", dense, nllb, {}
    yield "m2m", old, m2m, {"safe_serialization": False}
    yield "moe", moe, nllb, {"max_shard_size": "40KB"}
    yield "shards", dense, nllb, {"max_shard_size": "40KB", "safe_serialization": False}


def full_size(root, corpus):
    config = M2M100Config(
        vocab_size=256206,
        d_model=1024,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        encoder_ffn_dim=4096,
        decoder_ffn_dim=4096,
        max_position_embeddings=1024,
    )
    M2M100ForConditionalGeneration(config).save_pretrained(root / "full")
    nllb_tokenizer(root, corpus).save_pretrained(root / "full")
    return {}


def main():
    case = json.load(sys.stdin)
    root = Path(case["root"])
    if case.get("full"):
        print(json.dumps(full_size(root, case["corpus"])))
        return
    answers = {}
    for name, model, tokenizer, options in checkpoints(root, case["corpus"]):
        model.generation_config.num_beams = 3
        model.save_pretrained(root / name, **options)
        tokenizer.save_pretrained(root / name)
        answers[name] = answer(model, tokenizer, case["questions"][name], case["target"][name])
    print(json.dumps(answers))


@torch.no_grad()
def answer(model, tokenizer, questions, target):
    ids = {}
    for code, texts in questions.items():
        tokenizer.src_lang = code
        ids[code] = [tokenizer(text).input_ids for text in texts]
    rows = [row for of_code in ids.values() for row in of_code]
    of_m2m100 = isinstance(tokenizer, M2M100Tokenizer)
    tag = tokenizer.get_lang_id(target) if of_m2m100 else tokenizer.convert_tokens_to_ids(target)
    batch = tokenizer.pad({"input_ids": rows}, return_tensors="pt")
    results = {"ids": ids, "tag": tag}
    for beams in (1, 4):
        options = {**SEARCH, "num_beams": beams, "forced_bos_token_id": tag}
        if beams == 1:
            del options["length_penalty"], options["early_stopping"]
        output = model.generate(**batch, **options, return_dict_in_generate=True, output_scores=True)
        results[f"beam {beams}"] = [ended(row) for row in output.sequences.tolist()]
        if beams > 1:
            results["scores"] = output.sequences_scores.tolist()
    results["texts"] = tokenizer.batch_decode(results["beam 4"], skip_special_tokens=True)
    results["logits"] = []
    for row, translation in list(zip(rows, results["beam 1"], strict=True))[:6]:
        inputs = torch.tensor([[2, *translation]])
        results["logits"].append(model(input_ids=torch.tensor([row]), decoder_input_ids=inputs).logits[0].tolist())
    return results


def ended(row):
    """Drop the `</s>` that a decoder starts with, and what follows the next one."""
    body = row[1:]
    return body[: body.index(2)] if 2 in body else [index for index in body if index != 1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
