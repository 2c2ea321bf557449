"""How many threads an update is worth: what the tuner makes of the times of updates."""

from t3d.learn.fused.pace import TeamSize, doubling


def seconds_of(team: int) -> float:
    """A machine on which four threads are best, and sixteen are in each other's way."""
    return {1: 8.0, 2: 4.5, 4: 3.0, 8: 2.9, 16: 6.0}[team]


def test_it_settles_on_the_smallest_team_that_is_about_as_fast_as_any() -> None:
    size = TeamSize([1, 2, 4, 8, 16], policy_freq=2)
    tried = set()
    for _ in range(5 * 2 * 4):
        assert not size.settled
        tried.add(size.current)
        size.record(seconds_of(size.current))
    assert size.settled
    assert tried == {1, 2, 4, 8, 16}
    assert size.current == 4


def test_it_tries_again_from_time_to_time_and_follows_a_change() -> None:
    size = TeamSize([1, 2], policy_freq=1)
    while size.current != 2 or not size.settled:
        size.record({1: 0.02, 2: 0.01}[size.current])
    for _ in range(3_000):  # now another program needs the second core
        size.record({1: 0.02, 2: 0.05}[size.current])
    assert size.current == 1


def test_a_fixed_number_of_threads_stays() -> None:
    size = TeamSize([3], policy_freq=2)
    for seconds in (1.0, 100.0) * 50:
        size.record(seconds)
        assert size.settled
    assert size.current == 3


def test_sizes_double_up_to_the_largest() -> None:
    assert doubling(1) == [1]
    assert doubling(4) == [1, 2, 4]
    assert doubling(6) == [1, 2, 4, 6]
