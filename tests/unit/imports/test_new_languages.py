"""Tags of new languages in the vocabulary of an import; tests/golden/test_import_extended.py asks transformers."""

import json
import shutil
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file

from pipeline.corpus.config import Rules
from pipeline.corpus.languages import LangPair
from pipeline.dag.reuse import check_change, check_tags
from pipeline.export.command import export_run
from pipeline.export.config import load_export
from pipeline.export.huggingface import _check as check_huggingface_export
from pipeline.export.weights import named_weights
from pipeline.model.transformer import Transformer
from pipeline.train.upcycling import initialize_from
from pipeline.vocab.change import change_vocabulary
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.imported_tags import tag_token
from pipeline.vocab.rows import RowSources
from pipeline.vocab.symbols import UNK
from pipeline.vocab.vocabulary import Vocabulary
from tests.corpora import clean_pair
from tests.exports import Runs
from tests.tiny_checkpoints import ROWS, TAGS, TEXT, edited, loaded, run_import

REUSED = VocabConfig(shared=True, source_size=68, target_size=68, from_run="mine")
RELATIVES = {"fr": "de", "cv": None, "pt-BR": "en"}
TEXTS = ["the window", "chv_Cyrl <filler 66>", "open  a file"]
M2M = ["__de__", "__en__", "__tr__"]


def extended(vocabulary, relatives, out, bitexts=None):
    """Return a vocabulary with more languages, as a training makes it. vocabulary: the artifact of the old one."""
    config = replace(REUSED, extend=relatives, extend_size=20)
    check_change(config, vocabulary)
    out.mkdir(parents=True)
    change_vocabulary(config, vocabulary.path, bitexts or {}, out)
    return Vocabulary.load(out)


def started(run, vocabulary):
    """Return a model of a vocabulary that starts from the weights of a run."""
    size = vocabulary.source_size
    config = loaded(run)[0].config
    model = Transformer(config, source_vocabulary=size, target_vocabulary=size, shared=True, max_positions=64)
    path = run.model.path / "checkpoints" / "step-00000000"
    initialize_from(path, model, vocabulary.sha256, row_sources=RowSources.load(vocabulary.directory))
    return model.eval()


@pytest.fixture(scope="module")
def chuvash(tmp_path_factory):
    """Words of Chuvash, whose letters the tokenizer lacks, beside German ones of letters that it knows."""
    corpus = tmp_path_factory.mktemp("corpus")
    for split in ("train", "dev", "test"):
        (corpus / f"{split}.cv-de.tsv").write_text("чӑваш чӗлхи, чӑваш\topen window\n" * 9, encoding="utf-8")
    rules = Rules(**{rule.name: None for rule in fields(Rules)})
    return {LangPair("cv", "de"): clean_pair(corpus, "cv-de", tmp_path_factory.mktemp("store"), rules=rules).path}


@pytest.fixture
def m2m100(checkpoint):
    """The checkpoint with the tokenizer of M2M100, which has tags as __de__."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(checkpoint / "sentencepiece.bpe.model"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(index) for index in range(3, len(model)))]
    (checkpoint / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    (checkpoint / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": M2M}))
    return checkpoint


def test_tags_take_the_rows_after_the_last_token_and_then_new_ones(checkpoint, tmp_path):
    run = run_import(checkpoint)
    base, vocabulary = Vocabulary.load(run.vocabulary.path), extended(run.vocabulary, RELATIVES, tmp_path / "out")
    assert vocabulary.tags == {**base.tags, "fr": 66, "cv": 67, "pt-BR": 68}
    names = [vocabulary.source_model.id_to_piece(index) for index in (65, 66, 67, 68)]
    assert names == ["<mask>", "fra_Latn", "chv_Cyrl", "por_Latn_BR"]
    assert (base.source_size, vocabulary.source_size) == (68, 69)
    assert all(vocabulary.source_model.is_control(index) for index in (66, 67, 68))
    content = json.loads((tmp_path / "out" / "vocab.json").read_text())
    assert (content["source_size"], content["target_size"]) == (69, 69)
    assert content["changes"] == {"shared": {"before": 66, "added": 3, "removed": 0, "after": 69}}
    assert vocabulary.source_model.encode(TEXTS) == base.source_model.encode(TEXTS)
    (ids,) = vocabulary.encode_source(["the window"], "cv", "fr")
    assert (ids[0], vocabulary.first_target_tags("cv")) == (66, [67])
    assert vocabulary.decode_target([[67, *ids[1:]]]) == ["the window"]


def test_a_tag_starts_from_its_relative_or_from_the_mean_of_all(checkpoint, tmp_path):
    run = run_import(checkpoint)
    old_VM = loaded(run)[0].target_embedding_VM
    new_VM = started(run, extended(run.vocabulary, RELATIVES, tmp_path / "out")).target_embedding_VM
    assert torch.equal(new_VM[:66], old_VM[:66])
    assert torch.equal(new_VM[[66, 68]], old_VM[[61, 62]])
    torch.testing.assert_close(new_VM[67], old_VM[61:65].mean(dim=0))


def test_new_pieces_follow_the_tags_and_start_from_old_pieces(checkpoint, chuvash, tmp_path):
    run = run_import(checkpoint)
    base = Vocabulary.load(run.vocabulary.path)
    vocabulary = extended(run.vocabulary, {"cv": None, "fr": "de"}, tmp_path / "out", chuvash)
    model = vocabulary.source_model
    new = [model.id_to_piece(index) for index in range(68, model.get_piece_size())]
    assert sorted(new[:10]) == sorted("чӑвашӗлхи,")
    assert new[10:] == ["▁ч", "ӑв", "аш", "▁чӑв", "▁чӑваш", "ӗл", "хи", "▁чӗл", "▁чӗлхи"]
    assert vocabulary.tags == {**base.tags, "cv": 66, "fr": 67}
    assert vocabulary.source_size == 68 + len(new)
    assert model.encode("чӑваш чӗлхи,", out_type=str)[0] == "▁чӑваш"
    base = base.source_model
    assert UNK in base.encode("чӑваш")
    assert UNK not in model.encode("чӑваш чӗлхи")
    assert model.encode(TEXTS) == base.encode(TEXTS)
    rows = RowSources.load(tmp_path / "out").source
    assert rows[model.piece_to_id("ч")] == [UNK]
    assert rows[model.piece_to_id("▁чӑваш")] == [base.piece_to_id("▁"), UNK]
    content = json.loads((tmp_path / "out" / "vocab.json").read_text())
    assert content["changes"]["shared"] == {"before": 66, "added": 2 + len(new), "removed": 0, "after": 68 + len(new)}


def test_an_extended_vocabulary_can_be_extended_again(checkpoint, tmp_path):
    run = run_import(checkpoint)
    extended(run.vocabulary, {"fr": "de"}, tmp_path / "first")
    first = SimpleNamespace(path=tmp_path / "first")
    vocabulary = extended(first, {"cv": "fr", "la": None}, tmp_path / "second")
    assert [vocabulary.tags[code] for code in ("fr", "cv", "la")] == [66, 67, 68]
    assert [*vocabulary.added_tags] == ["fr", "cv", "la"]
    rows = RowSources.load(tmp_path / "second").target
    assert rows[66:] == [[66], [66], [61, 62, 63, 64, 66]]
    assert (tmp_path / "second" / "tokenizer" / "special_tokens_map.json").is_file()


@pytest.mark.parametrize("pieces", [False, True], ids=["tags", "pieces"])
@pytest.mark.parametrize("shape", ["listed", "numbered", "mask", "fast"])
def test_an_export_is_imported_again_with_the_new_tags(checkpoint, chuvash, tmp_path, shape, pieces):
    """The files of a tokenizer have four shapes: tokens in their order, all or one with ids, and a tokenizer.json."""
    entries = {str(61 + place): {"content": name, "special": True} for place, name in enumerate([*TAGS, "<mask>"])}
    if shape == "numbered":
        (checkpoint / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": entries}))
    if shape == "mask":
        (checkpoint / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"65": entries["65"]}}))
    if shape == "fast":
        listed = [{"id": int(index), **entry} for index, entry in entries.items()]
        bpe = {"type": "BPE", "vocab": {}, "merges": ["a b"]}
        (checkpoint / "tokenizer.json").write_text(json.dumps({"added_tokens": listed, "model": bpe}))
        (checkpoint / "added_tokens.json").write_text(json.dumps({"<mask>": 65}))
    run = run_import(checkpoint)
    relatives = {"fr": "de", "cv": None}
    vocabulary = extended(run.vocabulary, relatives, tmp_path / "vocabulary", chuvash if pieces else None)
    model, runs = started(run, vocabulary), Runs(tmp_path / "extended")
    runs.add("extended", [model], tmp_path / "vocabulary", [LangPair("fr", "cv")])
    export = tmp_path / "extended" / "export"
    export_run(load_export(["run=extended", f"out={export}", *runs.overrides]))
    settings = json.loads((export / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "NllbTokenizer"
    tokens = {int(index): entry["content"] for index, entry in settings["added_tokens_decoder"].items()}
    assert {61: "deu_Latn", 65: "<mask>", 66: "fra_Latn", 67: "chv_Cyrl"}.items() <= tokens.items()
    assert settings["additional_special_tokens"] == [*TAGS, "fra_Latn", "chv_Cyrl"]
    names = json.loads((export / "special_tokens_map.json").read_text())
    assert names["additional_special_tokens"] == [*TAGS, "fra_Latn", "chv_Cyrl"]
    if shape == "fast":
        content = json.loads((export / "tokenizer.json").read_text())
        assert content["model"]["vocab"].get("fra_Latn") == (66 if pieces else None)
        assert ("▁чӑв аш" in content["model"]["merges"]) == pieces
        last = content["added_tokens"][-1]
        assert (last["id"], last["content"], last["special"], last["normalized"]) == (67, "chv_Cyrl", True, False)
        assert json.loads((export / "added_tokens.json").read_text()) == {"<mask>": 65, "fra_Latn": 66, "chv_Cyrl": 67}
    assert "fra_Latn" in (export / "README.md").read_text(encoding="utf-8")
    again = run_import(export, pairs="fr-cv")
    vocabulary_again = Vocabulary.load(again.vocabulary.path)
    assert vocabulary_again.tags == vocabulary.tags
    texts = [*TEXTS, "чӑваш чӗлхи"]
    assert vocabulary_again.source_model.encode(texts) == vocabulary.source_model.encode(texts)
    assert load_file(export / "model.safetensors").keys() == named_weights(model).keys()
    assert torch.equal(loaded(again)[0].target_embedding_VM, model.target_embedding_VM)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trim": True}, r"vocab\.trim=true: .* of mine was imported .*; leave vocab\.trim out.*make distill"),
        ({"extend": {"de": "en"}}, r"vocab\.extend\.de=en: .* of mine has a tag for de already; leave de out"),
        ({"extend": {"de": None}}, r"vocab\.extend\.de=null: .* has a tag for de already; leave de out"),
        ({"extend": {"fr": "nl"}}, r"vocab\.extend\.fr=nl: the vocabulary of mine has no tag for nl; "),
        ({"extend": {"zh": "en"}}, r"vocab\.extend\.zh: its tag would be zho_Hans, which is that of zh-Hans; leave zh"),
        ({"extend": {"sr": "en", "sr-Cyrl": "en"}}, r"vocab\.extend\.sr-Cyrl: .* srp_Cyrl, which is that of sr; leave"),
        ({"extend": {"x_y z": "en"}}, r"vocab\.extend\.x_y z: .*; write a BCP-47 code, such as cv"),
    ],
)
def test_other_changes_are_refused(checkpoint, changes, message):
    with pytest.raises(ValueError, match=message):
        check_change(replace(REUSED, **changes), run_import(checkpoint).vocabulary)


@pytest.mark.parametrize(
    ("trained", "message"),
    [
        ({"model_type": "char"}, "a char model with the normalisation 'nmt_nfkc', but to"),
        (
            {"model_type": "bpe", "byte_fallback": True, "vocab_size": 300},
            "a bpe model .* and pieces for bytes, but to",
        ),
    ],
)
def test_tokenizers_of_other_kinds_get_tags_alone(checkpoint, tmp_path, trained, message):
    size = {"vocab_size": 24, **trained}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(tmp_path / "other"), minloglevel=2, **size
    )
    shutil.copyfile(tmp_path / "other.model", checkpoint / "sentencepiece.bpe.model")
    rows = size["vocab_size"] + 10
    edited(checkpoint, vocab_size=rows)
    weights = load_file(checkpoint / "model.safetensors")
    shared = [name for name, weight in weights.items() if weight.shape[0] == ROWS]
    save_file(
        {**weights, **{name: torch.zeros(rows, weights[name].shape[1]) for name in shared}},
        checkpoint / "model.safetensors",
    )
    run = run_import(checkpoint)
    with pytest.raises(
        ValueError, match=rf"extend_size=2000: .* was imported .*, and pieces cannot be added to {message}"
    ):
        check_change(replace(REUSED, extend={"cv": "de"}), run.vocabulary)
    config = replace(REUSED, extend={"cv": "de"}, extend_size=0)
    check_change(config, run.vocabulary)
    (tmp_path / "out").mkdir()
    change_vocabulary(config, run.vocabulary.path, {}, tmp_path / "out")
    assert "cv" in Vocabulary.load(tmp_path / "out").tags


def test_a_tokenizer_json_of_another_kind_gets_no_pieces(checkpoint):
    entries = [{"id": 61 + place, "content": name, "special": True} for place, name in enumerate([*TAGS, "<mask>"])]
    content = {"added_tokens": entries, "model": {"type": "Unigram"}}
    (checkpoint / "tokenizer.json").write_text(json.dumps(content))
    run = run_import(checkpoint)
    with pytest.raises(
        ValueError, match=r"its tokenizer\.json is of the type Unigram, .* again without tokenizer\.json"
    ):
        check_change(replace(REUSED, extend={"cv": "de"}), run.vocabulary)
    check_change(replace(REUSED, extend={"cv": "de"}, extend_size=0), run.vocabulary)


def test_pairs_may_have_new_languages_on_both_sides(checkpoint):
    run = run_import(checkpoint)
    tables = {"tables_of": lambda pair, split: []}
    corpus = SimpleNamespace(pairs=[LangPair("fr", "cv"), LangPair("cv", "de")], **tables)
    check_tags(replace(REUSED, extend={"fr": "de", "cv": None}), run.vocabulary, corpus)
    with pytest.raises(ValueError, match=r"no tag for cv, the target of fr-cv, .* as vocab\.extend=\{cv: de\}, or"):
        check_tags(replace(REUSED, extend={"fr": "de"}), run.vocabulary, corpus)


def test_an_extended_m2m100_is_trained_and_not_exported(m2m100, tmp_path, caplog):
    run = run_import(m2m100)
    check_huggingface_export(loaded(run)[0].config, Vocabulary.load(run.vocabulary.path))
    vocabulary = extended(run.vocabulary, {"cv": "tr"}, tmp_path / "out")
    assert any("vocab.extend (cv): the run cannot be exported" in message for message in caplog.messages)
    assert vocabulary.source_model.id_to_piece(vocabulary.tags["cv"]) == "__cv__"
    with pytest.raises(ValueError, match=r"added cv to an imported M2M100, .* fixed list of languages; translate here"):
        check_huggingface_export(loaded(run)[0].config, vocabulary)


@pytest.mark.parametrize(
    ("code", "token"),
    [
        *(("cv", "chv_Cyrl"), ("la", "lat_Latn"), ("sr-Latn", "srp_Latn"), ("tl", "tgl_Latn"), ("nah", "nah_Latn")),
        ("ca-valencia", "cat_Latn_valencia"),
    ],
)
def test_a_token_has_the_form_of_the_tags(code, token):
    assert tag_token(code, TAGS) == token
    assert tag_token(code, M2M) == f"__{code}__"
