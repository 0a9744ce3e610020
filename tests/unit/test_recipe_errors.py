"""A recipe that cannot be read is named with the line and the remedy."""

import shutil

import pytest

from pipeline.config import ROOT, load_config
from tests.unit.test_composition_errors import HYDRA

HEAD = "# @package _global_\nrecipe: mine\npairs: [de-en]\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    place = tmp_path_factory.mktemp("root")
    for part in ("configs", "recipes"):
        shutil.copytree(ROOT / part, place / part)
    return place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "model:\n\tdim: 3\n", "recipes/mine.yaml: line 5, column 1: a tab indents the line; use spaces"),
        (HEAD + "model: dim: 3\n", "recipes/mine.yaml: line 4, column 11: a second colon in one line"),
        (HEAD + "score: [bleu\n", "recipes/mine.yaml: line 5, column 1: a bracket or a quote is not closed"),
        (HEAD + 'name: "mine\n', "recipes/mine.yaml: line 5, column 1: a bracket or a quote is not closed"),
        (HEAD + "pairs: [fr-en]\n", "recipes/mine.yaml: line 4, column 1: pairs is there twice; merge the two"),
        (HEAD + "name: *mine\n", "line 4, column 7: a value begins with *, which YAML reads as a reference"),
        (HEAD + "name: !mine x\n", "line 4, column 7: a value begins with !, which YAML reads as a tag"),
        (HEAD + "model: {dim: ???}\n", "line 4, column 14: expected the node content, but found '?'; put the value"),
        ((HEAD + "name: \xff").encode("latin-1"), "recipes/mine.yaml: byte 54 is not UTF-8; convert the file to UTF-8"),
        ("# @package _global_\n- a\n", "recipes/mine.yaml: must be a mapping, of lines such as `pairs: [de-en]`"),
        ("", "recipes/mine.yaml: recipe is not set; a recipe begins with the line `# @package _global_`"),
        (HEAD.partition("\n")[2], "recipe is not set; a recipe begins with the line `# @package _global_`"),
        (HEAD + "defaults: {gate: top1}\n", "recipes/mine.yaml: defaults must be a list"),
        (HEAD + "defaults: [/recipes/smok, _self_]\n", "its defaults name smok: recipe smok does not exist; did you"),
        (HEAD + "defaults: [/recipes/mine, _self_]\n", "recipes/mine.yaml: its defaults lead back to itself"),
        (HEAD + "defaults: [override /gate: top9]\n", "recipes/mine.yaml: gate top9 does not exist; did you mean topk"),
        (HEAD + "defaults: [/gate: top1]\n", "choose gate, which has a default; write `override /gate: top1`"),
        (HEAD + "defaults: [gate: top1]\n", "a group begins with a slash, as in `override /gate: top1`"),
        (HEAD + "defaults: [3]\n", "recipes/mine.yaml does not fit configs/config.yaml; compare its keys"),
        (HEAD + "model: {dim: '${nope.x}'}\n", "model.dim: there is no key nope.x"),
        (HEAD + "model: {dim: '${nope'}\n", "recipes/mine.yaml: a reference ${…} cannot be read; close its brace"),
        (HEAD + "model: 3\n", "model=3 must be a mapping, as {dim: …"),
        (HEAD + "train: {lr: 1}\n", "train.lr does not exist; did you mean learning_rate?"),
        (HEAD + "baselines: null\n", "baselines=None must be a mapping"),
        (HEAD + "baselines: {tiers: [{up_to: 0, model: 3}]}\n", "baselines.tiers[0].model=3 must be a mapping"),
        (HEAD + "baselines: {search: {pairs: 2, candidates: 3}}\n", "baselines.search.candidates=3 must be a list"),
    ],
)  # fmt: skip
def test_a_wrong_recipe_is_named_with_its_line_and_a_remedy(root, text, message):
    file = root / "recipes" / "mine.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r".") as error:
        load_config(["recipes=mine"], root)
    assert message in str(error.value)
    assert not HYDRA.search(str(error.value))
    assert "\n" not in str(error.value)
    assert str(root) not in str(error.value)


def test_a_recipe_that_another_one_takes_is_named_where_the_fault_is_there(root):
    (root / "recipes" / "inner.yaml").write_text(HEAD + "defaults: [/recipes/smok]\n")
    (root / "recipes" / "mine.yaml").write_text(HEAD + "defaults: [/recipes/inner, _self_]\n")
    with pytest.raises(ValueError, match=r"^recipes/inner\.yaml: its defaults name smok: recipe smok does not exist"):
        load_config(["recipes=mine"], root)
