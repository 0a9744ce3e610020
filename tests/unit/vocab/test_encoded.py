from pathlib import Path

import numpy as np

from pipeline.vocab.encoded import EncodedSplit, SplitWriter
from pipeline.vocab.ragged import Ragged


def test_arrays_grow_in_pieces_to_uint32_and_join(tmp_path: Path) -> None:
    rows = [[70_000] * n for n in (3, 1, 0, 1234)]
    for name, pieces in {"a": (rows[:2], []), "b": (rows[2:],), "whole": (rows,)}.items():
        (tmp_path / name).mkdir()
        with SplitWriter(tmp_path / name, "train", np.dtype(np.uint32)) as writer:
            for piece in pieces:
                writer.write(Ragged.from_lists(piece), Ragged.from_lists(piece[::-1]))
    with SplitWriter(tmp_path, "train", np.dtype(np.uint32)) as writer:
        for name in ("a", "b"):
            writer.append(tmp_path / name, "train")
    joined, whole = EncodedSplit.open(tmp_path, "train"), EncodedSplit.open(tmp_path / "whole", "train")
    assert joined.source_tokens.dtype == np.uint32
    assert joined.source_tokens.tolist() == [70_000] * 1238
    assert joined.source_offsets.tolist() == [0, 3, 4, 4, 1238]
    assert joined.source_offsets.dtype == np.int64
    assert joined.target_offsets.tolist() == [0, 1, 4, 1238, 1238]  # the rows of each piece are reversed
    assert whole.source_offsets.tolist() == joined.source_offsets.tolist()
