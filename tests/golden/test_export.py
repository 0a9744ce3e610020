"""Exported models in transformers 4.57.1 and 5.23 and in CTranslate2, in their own environments (bench/setup.sh)."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from pipeline.config import ROOT
from pipeline.corpus.languages import LangPair
from pipeline.decode.search.incremental import DecoderState
from pipeline.decode.search.rows import padded
from pipeline.decode.search.search import Request, search
from pipeline.export.command import export_run
from pipeline.export.config import load_export
from pipeline.export.extraction import extract
from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.config import NoisyTopKConfig, Top2Config
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.symbols import EOS
from pipeline.vocab.tokenizer import Vocabulary, train_vocabulary
from tests.corpora import clean_pair
from tests.exports import DECODE, V4, V5, Runs, config_of, install_or_skip, random_model

SAMPLE = ROOT / "data" / "sample"
PAIRS = [LangPair("ja", "en"), LangPair("en", "tr")]
WIDE = MoEConfig(num_experts=4, expert_dim=64, output_scale=0.8)
NARROW = MoEConfig(
    num_experts=3, expert_dim=24, every=1, gate=NoisyTopKConfig(), encoder_gate=Top2Config(prioritized=True)
)
TASK = MoEConfig(num_experts=4, expert_dim=24, gate=TaskConfig()).with_pairs([f"{p.src}:{p.tgt}" for p in PAIRS])
MODELS = {
    "dense": config_of(),
    "wide": config_of(moe=WIDE),
    "narrow": config_of(moe=NARROW, biases=True),
    "task": config_of(moe=TASK),  # its dense model of one pair, whose layers with experts are narrower than the others
}
TASK_PAIR = PAIRS[0]
FAMILY = dict.fromkeys(("dense", "task"), "M2M100ForConditionalGeneration")
# texts with symbols, spaces and ▁ at the ends, names of byte pieces, and scripts that have no piece
NASTY = [
    *("", "   ", " two  spaces ", "\ta\u00a0b\u3000c ", "line\nbreak", "▁▁x ▁ ▁y ▁", "x▁ ▁ "),
    *("<2en>", "a<2tr>b</s>", "<s><pad> <unk>", "<0x41>", "x<0x0A><0xFF>", "<<2en>>", "<2en", "< 2en>"),
    *(
        "e\u0301 ﬁ １２",
        "👩‍👩‍👧 🏳️‍🌈 𝔘",
        "\U0010ffff\ue000\ufeff\u200b",
        "नमस्ते, ગુજરાતી தமிழ் অসমীয়া",
        "ελληνικά Українська",
    ),
    *("فارسی می‌خواهم", "ភាសាខ្មែរ", "日本語の文。简体 繁體", "한국어 문장", "Ђорђе đak ħ"),
    *("עברית", "ქართული", "ไทย", "አማርኛ"),
]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory):
    """Train a shared vocabulary and separate ones, for the same two pairs."""
    root = tmp_path_factory.mktemp("export")
    bitexts = {pair: clean_pair(SAMPLE, pair.name, root / "store").path for pair in PAIRS}
    directories = {}
    for name, sizes in (("shared", (2500, 2500)), ("separate", (2000, 1500))):
        (root / name).mkdir()
        config = VocabConfig(shared=name == "shared", source_size=sizes[0], target_size=sizes[1])
        train_vocabulary(config, bitexts, root / name)
        directories[name] = root / name
    return directories


@pytest.fixture(scope="module")
def vocabulary(vocabularies):
    return Vocabulary.load(vocabularies["shared"])


@pytest.fixture(scope="module")
def models(vocabulary):
    return {name: random_model(config, vocabulary) for name, config in MODELS.items()}


@pytest.fixture(scope="module")
def separate(vocabularies):
    vocabulary = Vocabulary.load(vocabularies["separate"])
    return vocabulary, random_model(config_of(activation="swiglu", norm="rms"), vocabulary)


@pytest.fixture(scope="module")
def runs(models, separate, vocabularies, tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    for name, model in models.items():
        runs.add(name, [model], vocabularies["shared"], PAIRS)
    runs.add("separate", [separate[1]], vocabularies["separate"], PAIRS)
    return runs


@pytest.fixture(scope="module")
def exports(runs):
    for name in MODELS:
        pair = [f"pairs=[{TASK_PAIR.name}]"] if name == "task" else []
        export_run(load_export([f"run={name}", f"out={runs.root}/{name}", *pair, *runs.overrides]))
    return runs.root


@pytest.fixture(scope="module")
def texts():
    """Return short sentences of every language of the sample."""
    rows = (SAMPLE / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    columns = zip(*(row.split("\t") for row in rows), strict=True)
    return [text for column in columns for text in [text for text in column if 10 < len(text) < 60][:6]]


@pytest.fixture(scope="module")
def expected(runs, models, vocabulary, texts):
    """For each model: sources, translations with scores, and the logits of translations."""
    extract(models["task"], [f"{TASK_PAIR.src}:{TASK_PAIR.tgt}"])  # tests/unit/export has its equality with the mixture
    results = {}
    for name, model in models.items():
        languages = ("en", "tr") if name != "task" else ("en",)
        sources = [ids for language in languages for ids in vocabulary.encode_source(texts[::4], language)]
        best = [hypotheses[0] for hypotheses in search(model, [Request(source=ids) for ids in sources], DECODE)]
        targets = [[*hypothesis.tokens, EOS] for hypothesis in best[:10]]
        results[name] = sources, best, targets, logits_of(model, sources, targets)
    return results


@torch.inference_mode()
def logits_of(model, sources, targets):
    longest, device = max(map(len, targets)), torch.device("cpu")
    state = DecoderState(model, padded(sources[: len(targets)], device), beam=1, max_length=longest)
    inputs_BT = padded([[EOS, *ids[:-1]] for ids in targets], device)
    logits_BTV = torch.stack([state.step(inputs_BT[:, step]) for step in range(longest)], dim=1)
    return [rows[: len(ids)] for rows, ids in zip(logits_BTV, targets, strict=True)]


@pytest.fixture(scope="module")
def exported(exports, runs, expected, texts, vocabulary, separate):
    """For each environment and question, the answers of tests.transformers_worker."""
    install_or_skip(ROOT)
    cases = {name: question(exports / name, expected[name], texts, remote=True) for name in MODELS}
    cases["stock"] = question(exports / "wide", expected["wide"], texts, remote=False)
    dense = [pieces(vocabulary, ids) for ids in expected["dense"][0]]
    task = [pieces(vocabulary, ids) for ids in expected["task"][0]]
    other = [pieces(separate[0], ids) for ids in separate[0].encode_source(texts[::4], "en")]
    ct2 = {
        "ct2": converted(runs, "dense", dense),
        "ct2 task": converted(runs, "task", task, f"pairs=[{TASK_PAIR.name}]"),
        "ct2 stock": {**converted(runs, "stock", dense), "convert": str(exports / "dense")},
        "ct2 separate": converted(runs, "separate", other),
    }
    cases_of = {V4: {**cases, **ct2}, V5: cases}
    with ThreadPoolExecutor(2) as threads:
        return dict(zip(cases_of, threads.map(answers, cases_of, cases_of.values()), strict=True))


def question(directory, results, texts, *, remote):
    sources, _, targets, _ = results
    return {
        "directory": str(directory),
        "remote": remote,
        "sources": sources,
        "targets": targets,
        "generate": {"max_new_tokens": DECODE.max_length_extra},
        "texts": {"en": [*texts, *NASTY]} | ({"tr": NASTY} if remote else {}),
    }


def converted(runs, name, sources, *overrides):
    directory = f"{runs.root}/ct2-{name}"
    command = ["export", f"run={name}", f"out={directory}", "format=ctranslate2", *overrides, *runs.overrides]
    arguments = {
        "beam_size": DECODE.beam,
        "length_penalty": 1.0,
        "max_decoding_length": DECODE.max_length_extra,
        "min_decoding_length": 0,  # the default is 1
        "suppress_sequences": [["<s>"], ["<pad>"]],
    }
    return {"directory": directory, "command": command, "convert": "", "sources": sources, "arguments": arguments}


def pieces(vocabulary, ids):
    return [vocabulary.source_model.id_to_piece(index) for index in ids]


def answers(environment, cases):
    command = [ROOT / environment / "bin/python", "-W", "ignore", "-m", "tests.transformers_worker"]
    options = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    options |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.run(
        command,
        input=json.dumps(list(cases.values())),
        env={**os.environ, **options},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return dict(zip(cases, json.loads(process.stdout.splitlines()[-1])["answers"], strict=True))


def test_without_a_package_index_these_tests_are_skipped(tmp_path):
    """The address of the package index is closed, and the checkout has no environment yet."""
    shutil.copytree(ROOT / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    index = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    nowhere = {**index, "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    with pytest.raises(pytest.skip.Exception, match="no index has them"):
        install_or_skip(tmp_path, **nowhere)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_and_setting_has_its_place_in_transformers_own_model(exported, version, name):
    answer = exported[version][name]
    assert FAMILY.get(name, "NllbMoeForConditionalGeneration") in answer["class"]
    assert answer["loading"] == {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": []}
    assert set(answer["unknown"]) <= {"auto_map", "torch_dtype"}


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_ours(exported, expected, version, name):
    for expected_TV, logits_TV in zip(expected[name][3], exported[version][name]["logits"], strict=True):
        torch.testing.assert_close(torch.tensor(logits_TV), expected_TV, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_beam_search_of_generate_finds_our_translations(exported, expected, version, name):
    answer, best = exported[version][name], expected[name][1]
    assert len({tuple(hypothesis.tokens) for hypothesis in best}) > len(best) / 3, "the test would see little"
    same = [hypothesis.tokens == ids for hypothesis, ids in zip(best, answer["generated"], strict=True)]
    assert sum(same) >= 0.998 * len(same)
    for hypothesis, score in zip(best, answer["scores"], strict=True):
        assert hypothesis.score == pytest.approx(score, abs=1e-4)


def test_without_the_code_beside_the_weights_transformers_5_is_wrong_as_the_card_says(exported, expected):
    def error(version):
        rows = zip(expected["wide"][3], exported[version]["stock"]["logits"], strict=True)
        return max((expected_TV - torch.tensor(logits_TV)).abs().max() for expected_TV, logits_TV in rows)

    assert error(V4) < 1e-4
    assert error(V5) > 0.1  # a version that repairs it should take the warning out of the card


@pytest.mark.parametrize("case", ["dense", "stock"])
def test_tokens_of_any_text_are_ours(exported, version, vocabulary, texts, case):
    """Tokens are equal also without the code next to the weights, but then always for the first language."""
    ids = exported[version][case]["ids"]
    assert ids["en"] == vocabulary.encode_source([*texts, *NASTY], "en")
    if case == "dense":
        assert ids["tr"] == vocabulary.encode_source(NASTY, "tr")
    tags = set(vocabulary.tags.values())
    assert all(not tags.intersection(row[1:]) for row in ids["en"])


def test_translations_are_decoded_as_ours(exported, version, vocabulary):
    """But for bytes that are no UTF-8: SentencePiece replaces the wrong ones, tokenizers the whole run of bytes."""
    for name in MODELS:
        answer = exported[version][name]
        decoded = zip(answer["decoded"], vocabulary.decode_target(answer["generated"]), strict=True)
        different = [texts for texts in decoded if texts[0] != texts[1]]
        assert all("\ufffd" in text for _, text in different)
        assert len(different) <= 1


@pytest.mark.parametrize(("name", "model"), [("ct2", "dense"), ("ct2 stock", "dense"), ("ct2 task", "task")])
def test_ctranslate2_finds_our_translations(exported, expected, vocabulary, name, model):
    check_ctranslate2(exported[V4][name], expected[model][1], vocabulary)


def test_ctranslate2_takes_separate_vocabularies_swiglu_and_rms_norm(exported, separate, texts):
    vocabulary, model = separate
    requests = [Request(source=ids) for ids in vocabulary.encode_source(texts[::4], "en")]
    best = [hypotheses[0] for hypotheses in search(model, requests, DECODE)]
    check_ctranslate2(exported[V4]["ct2 separate"], best, vocabulary)


def check_ctranslate2(answer, best, vocabulary):
    name = vocabulary.target_model.id_to_piece
    rows = zip(best, answer["hypotheses"], answer["scores"], strict=True)
    differing = [row for hypothesis, row, _ in rows if [name(i) for i in hypothesis.tokens] != row]
    assert not differing
    for hypothesis, score in zip(best, answer["scores"], strict=True):
        assert hypothesis.score == pytest.approx(score, abs=1e-3)  # CTranslate2 sums in another order


def test_a_card_says_what_the_run_said(exports):
    card = Path(exports / "narrow" / "README.md").read_text(encoding="utf-8")
    assert "the experts are 48 wide here and 24 in training" in card
    row = "| ja-en | bleu | 12.3 | 11.1 to 13.2 | 300 |"
    assert all(text in card for text in ("Those who wrote \\| it", row, "trust_remote_code=True", "800"))
    assert "bilingual" not in card
