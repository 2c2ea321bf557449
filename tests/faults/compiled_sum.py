"""A small compiled function, kept on disk like the fused engine."""

from t3d.base.compiling import entry


@entry
def total(count: int) -> int:
    """1 + 2 + ... + count."""
    result = 0
    for number in range(count + 1):
        result += number
    return result
