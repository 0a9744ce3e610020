"""transformers' `generate` on the exported weights: `python -m bench.decode.peer_transformers job.json`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import M2M100ForConditionalGeneration, NllbMoeForConditionalGeneration

from bench.decode.systems import BEAM, LIMIT
from bench.decode.turns import take_turns
from bench.products import use_our_libraries

PAD, EOS = 1, 2
CLASSES: dict[str, Any] = {"m2m_100": M2M100ForConditionalGeneration, "nllb-moe": NllbMoeForConditionalGeneration}


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    use_our_libraries()
    torch.set_num_threads(job["threads"])
    settings = json.loads(Path(job["export"], "config.json").read_text(encoding="utf-8"))
    dtype = torch.bfloat16 if job["precision"] == "bf16" else torch.float32
    model = CLASSES[settings["model_type"]].from_pretrained(job["export"], dtype=dtype).eval().to(job["device"])

    def translate(sources: Sequence[Sequence[int]]) -> list[list[int]]:
        longest = max(map(len, sources))
        ids = torch.tensor([[*source, *[PAD] * (longest - len(source))] for source in sources], device=job["device"])
        with torch.inference_mode():
            generated = model.generate(
                input_ids=ids,
                attention_mask=(ids != PAD).long(),
                num_beams=BEAM,
                early_stopping=True,
                length_penalty=1.0,
                max_new_tokens=LIMIT,
                do_sample=False,
            )
        return [trimmed(row) for row in generated.tolist()]

    take_turns(job["sources"], translate)


def trimmed(row: list[int]) -> list[int]:
    """Return the tokens without the `</s>` that the decoder starts with, and without the end."""
    body = row[1:]
    return body[: body.index(EOS)] if EOS in body else [token for token in body if token != PAD]


if __name__ == "__main__":
    main()
