from pathlib import Path

from pipeline.vocab.ragged import encode_texts
from pipeline.vocab.vocabulary import Vocabulary


def test_the_private_method_of_sentencepiece_gives_what_the_public_one_gives(shared: Path) -> None:
    """The arrays come from a private method. This test fails if a version of SentencePiece lacks it."""
    model = Vocabulary.load(shared).source_model
    texts = ["Öffnen Sie die Datei.", "", "ファイルを開く <2de>", "a" * 500]
    fast = encode_texts(model, [text.encode() for text in texts], 2)

    class Public:
        """The same model, without the private method."""

        encode = model.encode

    slow = encode_texts(Public(), [text.encode() for text in texts], 2)
    assert hasattr(model._processor, "_EncodeAsBufferBatch")
    assert fast.tokens.tolist() == slow.tokens.tolist()
    assert fast.lengths.tolist() == slow.lengths.tolist()
    assert fast.lengths[1] == 1
