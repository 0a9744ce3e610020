"""Training of vocabularies: SentencePiece unigram models of source and target, with language tags at fixed ids."""

import io
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import sentencepiece

from pipeline.corpus.funnel import funnel
from pipeline.corpus.languages import LangPair
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.sample import Sample, allocate_lines, sample_rows
from pipeline.vocab.symbols import BOS, EOS, FIRST_TAG, PAD, UNK, source_tag_of, tag_of
from pipeline.vocab.vocabulary import VOCABULARY, Vocabulary, vocabulary_sha256

__all__ = ["BOS", "EOS", "PAD", "UNK", "VOCABULARY", "Vocabulary", "train_vocabulary", "vocabulary_sha256"]

_NUM_THREADS = 2  # affects the result, because sums are merged by thread
_TOO_SMALL = re.compile(r"smaller than required_chars\. (\d+) vs (\d+)")

_log = logging.getLogger(__name__)


def train_vocabulary(config: VocabConfig, bitexts: Mapping[LangPair, Path], out: Path) -> None:
    """Train the models on a sample of the training rows of all pairs, and write them and `vocab.json` to `out`.

    The ids of `<s> <pad> </s> <unk>` are 0 to 3. From 4 on, the source (or shared) model has the tags of all target
    languages, sorted by code, and then the tags of sources, sorted. A model is smaller than its size if its text has
    too few pieces. A smaller model is logged, and so are rows that are left out because the text is too long.

    bitexts: directory of the cleaned rows of each pair.
    Raises ValueError if a size is too small for the characters of its text.
    """
    if not bitexts:
        raise ValueError("a vocabulary needs the text of a pair; give one or more pairs")
    pairs = sorted(bitexts)
    funnels = {pair: funnel(bitexts[pair]) for pair in pairs}
    codes = sorted({pair.tgt for pair in pairs})
    marks = sorted({source["tag"] for funnel_ in funnels.values() for source in funnel_["sources"]} - {""})
    symbols = [*map(tag_of, codes), *map(source_tag_of, marks)]
    num_rows = {pair: funnels[pair]["train"]["kept"] for pair in pairs}
    lines = allocate_lines(num_rows, config.sample_lines, config.temperature)
    sample = Sample(bitexts, {pair: sample_rows(num_rows[pair], lines[pair], pair, config.seed) for pair in pairs})

    def model(name: str, sides: Sequence[str], size: int, symbols: Sequence[str], rule: str) -> bytes:
        limited = sample.limited(sides, config.sample_chars, config.seed)
        setting = "vocab.source_size and target_size" if name == "shared" else f"vocab.{name}_size"
        return train_model(config, limited.texts(sides), size, setting, symbols, rule)

    # A target must be decoded exactly as it was written, or BLEU compares a changed text. So its rule is identity;
    # it is in NFC already. For a source nmt_nfkc saves pieces, because it folds full-width forms. A shared model has
    # one rule, which must be that of the target.
    if config.shared:
        models = {"shared": model("shared", ("src", "tgt"), config.source_size, symbols, "identity")}
    else:
        models = {
            "source": model("source", ("src",), config.source_size, symbols, "nmt_nfkc"),
            "target": model("target", ("tgt",), config.target_size, (), "identity"),
        }
    sizes = []
    for name, proto in models.items():
        (out / f"{name}.model").write_bytes(proto)
        sizes.append(sentencepiece.SentencePieceProcessor(model_proto=proto).get_piece_size())
    content = {
        "shared": config.shared,
        "source_size": sizes[0],
        "target_size": sizes[-1],
        "requested_source_size": config.source_size,
        "requested_target_size": config.target_size,
        "tags": {code: FIRST_TAG + i for i, code in enumerate(codes)},
        **({"source_tags": {tag: FIRST_TAG + len(codes) + i for i, tag in enumerate(marks)}} if marks else {}),
        "sentencepiece": sentencepiece.__version__,
        "sample_lines": {pair.name: lines[pair] for pair in pairs},
    }
    (out / VOCABULARY).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def train_model(
    config: VocabConfig,
    texts: Iterator[str],
    size: int,
    setting: str,
    symbols: Sequence[str],
    rule: str,
    *,
    uncounted: int = 0,
) -> bytes:
    """Train one SentencePiece model, and return its bytes.

    setting: name of the setting that has the size, for messages.
    rule: name of the normalisation.
    uncounted: pieces that the size does not count.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=texts,
            model_writer=model,
            model_type="unigram",
            vocab_size=size + uncounted,
            hard_vocab_limit=False,  # a text with too few pieces gets a smaller model instead of an error
            byte_fallback=True,
            character_coverage=config.character_coverage,
            normalization_rule_name=rule,
            # Control symbols, because a text cannot contain them: "<2de>" in a text is five characters.
            control_symbols=list(symbols),
            bos_id=BOS,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNK,
            max_sentence_length=1 << 20,  # bytes; SentencePiece skips longer lines without a message
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        too_small = _TOO_SMALL.search(str(error))
        if too_small is None:
            raise ValueError(f"{setting}={size}: SentencePiece could not train a model: {error}") from error
        raise ValueError(
            f"{setting}={size} is too small for the characters, bytes and symbols of this text; choose "
            f"{int(too_small[2]) - uncounted} or more, or lower vocab.character_coverage={config.character_coverage}"
        ) from error
    content = model.getvalue()
    trained = sentencepiece.SentencePieceProcessor(model_proto=content)
    for index, symbol in enumerate(symbols, start=FIRST_TAG):
        assert trained.piece_to_id(symbol) == index, (symbol, index)
    trained_size = trained.get_piece_size() - uncounted
    if trained_size < size:
        _log.warning("%s shrank from %d to %d: the text has no more pieces", setting, size, trained_size)
    return content
