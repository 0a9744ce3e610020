"""The planner predicts what DeepSpeed and our model send in a step."""

from tests.parallel.conftest import run_worker


def test_the_engine_sends_what_the_planner_says(tmp_path):
    assert run_worker("collectives_worker.py", tmp_path, processes=4).endswith("equal\n")
