from t3d.show.words import clock, knobs_text, value_text


def test_a_clock_reads_like_one() -> None:
    assert [clock(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]


def test_values_are_written_as_they_are_typed() -> None:
    values = (0.005, True, None, (400, 300), "auto")
    assert [value_text(value) for value in values] == ["0.005", "True", "None", "400 300", "auto"]
    assert value_text((0.123456, 1), digits=3) == "0.123 1"


def test_knobs_are_one_line_with_three_digits() -> None:
    knobs = {"learning_rate": 0.000123456, "hidden": (64, 64), "n_step": 1000}
    assert knobs_text(knobs) == "learning_rate 0.000123, hidden 64 64, n_step 1000"
