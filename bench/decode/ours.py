"""One process of our own beam search: `python -m bench.decode.ours job.json`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.decode.systems import BEAM, LIMIT
from bench.decode.turns import batches, take_turns
from pipeline.decode.config import DecodeConfig
from pipeline.decode.model import load_model
from pipeline.decode.search.hypothesis import Request
from pipeline.decode.search.incremental import DecoderState
from pipeline.decode.search.rows import padded
from pipeline.decode.search.search import search
from pipeline.jobs.matmul import choose_matmul
from pipeline.model.transformer import Transformer
from pipeline.vocab.tokenizer import Vocabulary


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(job["threads"])
    device = torch.device(job["device"])
    if device.type == "cpu":
        choose_matmul()
    config = DecodeConfig(
        beam=BEAM,
        length_norm="power",
        length_penalty=1.0,
        max_length_ratio=0.0,
        max_length_extra=LIMIT,
        precision=job["precision"],
        beam_memory=job["memory"],
        batch_tokens=job["batch_tokens"],
    )
    longest = max(map(len, job["sources"]))
    model = load_model(
        Path(job["checkpoints"]),
        Vocabulary.load(Path(job["vocabulary"])),
        longest=longest,
        config=config,
        device=device,
    )

    def translate(sources: Sequence[Sequence[int]]) -> list[list[int]]:
        return [best.tokens for best, *_ in search(model, [Request(source=source) for source in sources], config)]

    largest = max(batches(job["sources"], config.batch_tokens), key=len)
    allocated, arithmetic = cache_bytes(model, [job["sources"][number] for number in largest], config)
    take_turns(job["sources"], translate, cache=allocated, cache_arithmetic=arithmetic)


@torch.inference_mode()
def cache_bytes(model: Transformer, sources: Sequence[Sequence[int]], config: DecodeConfig) -> tuple[int, int]:
    """Return the bytes of a batch's keys, values and masks, measured and by arithmetic.

    The arithmetic is the bytes of 2 · layers · n · N · D · (L + K · T) numbers, for n sources, N heads of size D, a
    source length L, a beam K and a target length T.
    """
    source_BL = padded(sources, model.target_embedding_VM.device)
    state = DecoderState(model, source_BL, beam=BEAM, max_length=LIMIT, memory=config.beam_memory)
    size = model.target_embedding_VM.element_size()
    width = model.config.heads * model.config.key_dim
    numbers = 2 * model.config.decoder_layers * len(sources) * width * (source_BL.shape[1] + BEAM * LIMIT)
    return sum(t.untyped_storage().nbytes() for t in state.tensors), numbers * size


if __name__ == "__main__":
    main()
