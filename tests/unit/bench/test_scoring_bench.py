from bench.decode.scoring import LIMIT, seconds


def test_a_small_run_is_scored_well_below_the_limit() -> None:
    assert 0 < seconds(num_pairs=2, num_lines=20, n_resamples=20) < LIMIT
