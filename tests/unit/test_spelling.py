from dataclasses import asdict

import pytest

from pipeline.config import load_config
from pipeline.spelling import _MEANINGS, did_you_mean, key_suggestion, nearest_names, suggestion


def test_the_most_similar_names_come_first() -> None:
    assert nearest_names("tarin", ["dev", "train", "taring"]) == ["taring", "train"]
    assert nearest_names("tarin", ["dev", "train", "taring"], most=1) == ["taring"]
    assert nearest_names("tarin", ["train"], cutoff=0.9) == []


def test_hints_of_messages() -> None:
    assert did_you_mean("tmy", ["tmx", "tsv"]) == "; did you mean tmx?"
    assert did_you_mean("zzz", ["tmx"]) == ""
    assert suggestion("tmy", iter(["tmx"])) == "; did you mean tmx?"
    assert suggestion("zzz", ["tmx", "tsv"]) == "; there are tmx, tsv"
    assert suggestion("zzz", [], listing="finished are") == "; finished are none"


def leaves(tree: object, path: str = "") -> list[str]:
    if not isinstance(tree, dict) or not tree:
        return [path]
    return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}.{key}" if path else key)]


def test_every_term_of_other_toolkits_leads_to_keys_that_exist() -> None:
    keys = [*leaves(asdict(load_config([]))), "model.moe.gate.k", "devices", "gpu"]
    for term, fields in _MEANINGS.items():
        assert [name for name in fields if not any(f".{key}".endswith(f".{name}") for key in keys)] == [], term
    last_parts = {key.rpartition(".")[2] for key in keys}
    assert last_parts & set(_MEANINGS) == {"batch_tokens"}, "decoding has it, and training has groups"


KEYS = ["train.learning_rate", "train.seed", "decode.beam", "decode.batch_tokens", "batch.groups_per_step", "model.dim"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("train.lr", "; did you mean train.learning_rate?"),
        ("LR", "; did you mean train.learning_rate?"),
        ("train.batch_size", "; did you mean batch.groups_per_step or decode.batch_tokens?"),
        ("decode.batch_size", "; did you mean decode.batch_tokens?"),
        ("translate.beam", "; did you mean decode.beam?"),
        ("train.sed", "; did you mean train.seed?"),
        ("modl.dim", "; did you mean model.dim?"),
        ("train.zzz", "; train has learning_rate, seed"),
        ("model.num_experts", "; model has dim"),
        ("zzz", ""),
    ],
)
def test_a_key_is_found_by_its_meaning_its_last_part_or_its_spelling(key: str, hint: str) -> None:
    assert key_suggestion(key, KEYS) == hint


def test_terms_help_in_other_lists_too_and_only_where_their_field_exists() -> None:
    assert suggestion("lr", ["learning_rate", "ema"]) == "; did you mean learning_rate?"
    assert suggestion("cuda", ["cpu", "gpu"]) == "; did you mean gpu?"
    assert suggestion("lr", ["ema", "dim"]) == "; there are ema, dim"


def test_whole_terms_whole_last_parts_and_few_keys_are_suggested() -> None:
    keys = ["train.seed", "train.schedule.kind", "decode.seeds", "model.dim", "model.ffn_dim", "decode.beam"]
    assert key_suggestion("beam.size", keys) == "; did you mean decode.beam?"
    assert key_suggestion("model.d_model", keys) == "; did you mean model.dim?"
    assert key_suggestion("train.zzz", keys) == "; train has seed, schedule"
    assert key_suggestion("trian.seed", ["train.seed", "decode.seeds"]) == "; did you mean train.seed?"
    assert key_suggestion("trian.sede", ["train.seed", "train.steps"]) == "; did you mean train.seed?"
    assert key_suggestion("q.kind", [f"{section}.kind" for section in "abcd"]) == (
        "; did you mean a.kind or b.kind or c.kind?"
    )
