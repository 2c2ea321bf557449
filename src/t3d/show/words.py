"""How values and times are written for people, and lines that several commands print."""

from typing import Any

COMPILING = "compiling the fused engine, once on this machine: about half a minute ..."
STOPPING = "stopping after this step, to save; once more to quit at once"


def clock(seconds: float) -> str:
    """Seconds as 1:02:03 or 2:03."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def value_text(value: Any, digits: int | None = None) -> str:
    """The value of a knob as it is typed; floats are rounded to `digits` digits, if given."""
    if isinstance(value, tuple):
        return " ".join(value_text(each, digits) for each in value)
    return f"{value:.{digits}g}" if digits and isinstance(value, float) else str(value)


def knobs_text(knobs: dict[str, Any]) -> str:
    """Knobs in one line, with three digits of each number."""
    return ", ".join(f"{name} {value_text(value, 3)}" for name, value in knobs.items())
