"""Compile functions with Numba. It is imported on first use: that takes half a second."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",  # a division by zero gives inf, as in PyTorch
}

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function into whatever compiled function calls it."""
    import numba

    return cast(Function, numba.njit(**_OPTIONS)(function))


def entry(function: Function) -> Function:
    """Compile a function that Python calls, and keep the result on disk, where that is possible."""
    import numba

    try:
        return cast(Function, numba.njit(cache=True, **_OPTIONS)(function))
    except RuntimeError:  # neither the source's folder nor the user's cache is writable
        return compiled(function)
