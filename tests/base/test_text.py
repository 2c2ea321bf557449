import pytest

from t3d.base.text import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Pendulum-v1, ± 3 × 4, 振り子", "Pendulum-v1, ± 3 × 4, 振り子"),
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("one\ntwo\r\nthree\t", r"one\ntwo\r\nthree\t"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("\x9b31m\x00\x7f", r"\x9b31m\x00\x7f"),
        ("a\u2028b\u200bc", r"a\u2028b\u200bc"),
        ("\udc80", r"\udc80"),
        ("x" * 10**6, f"{'x' * 4000} ... (1,000,000 characters)"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(text).isprintable()
