"""CTranslate2 on the exported weights: `python -m bench.decode.peer_ctranslate2 job.json`.

CTranslate2 is one process in every way, because it has its own workers: `processes` workers of `threads` each.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from bench.decode.systems import BEAM, LIMIT
from bench.decode.turns import take_turns

COMPUTE = {"fp32": "float32", "int8": "int8"}


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    pieces = json.loads(Path(job["export"], "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {piece: index for index, piece in enumerate(pieces)}
    translator = ctranslate2.Translator(
        job["export"],
        device="cpu",
        compute_type=COMPUTE[job["precision"]],
        inter_threads=job["processes"],
        intra_threads=job["threads"],
    )

    def translate(sources: Sequence[Sequence[int]]) -> list[list[int]]:
        results = translator.translate_batch(
            [[pieces[token] for token in source] for source in sources],
            max_batch_size=job["batch_tokens"] // BEAM,
            batch_type="tokens",
            beam_size=BEAM,
            length_penalty=1.0,
            max_decoding_length=LIMIT,
            max_input_length=0,
        )
        return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

    take_turns(job["sources"], translate)


if __name__ == "__main__":
    main()
