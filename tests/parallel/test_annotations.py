"""GShard's three annotations in real processes."""

from tests.parallel.conftest import run_worker


def test_the_three_words_in_four_processes(tmp_path):
    assert run_worker("annotations_worker.py", tmp_path, processes=4).endswith("equal\n")
