"""A mixture that the corpus does not have is an error before anything is cleaned."""

import pytest

from pipeline.config import load_config
from pipeline.dag.run import train_run


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("groups.out.pairs=[en-*]", r"batch\.mixture\.groups\.out\.pairs: 'en-\*' matches none of the pairs; .*de-en"),
        (
            "sources.bt.sources=[bt]",
            r"batch\.mixture\.sources\.bt\.sources: 'bt' matches none of the sources; there are",
        ),
    ],
)
def test_what_there_is_not_is_said_before_cleaning(tmp_path, rule, message):
    places = [f"runtime.artifacts={tmp_path / 'artifacts'}", f"runtime.runs={tmp_path / 'runs'}"]
    config = load_config(["recipes=smoke", f"+batch.mixture.{rule}", *places])
    with pytest.raises(ValueError, match=message):
        train_run(config)
    assert (tmp_path / "artifacts" / "fetch").is_dir()
    assert not (tmp_path / "artifacts" / "clean").exists()
