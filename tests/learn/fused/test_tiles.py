"""The sums of the fused engine, in the order that its bits depend on."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from t3d.base.compiling import compiled
from t3d.learn.fused.tiles import dot

Array = NDArray[Any]


@compiled
def compiled_dot(a: Array, b: Array) -> Any:
    return dot(a, b)


def by_hand(a: Array, b: Array) -> Any:
    """The same sum: in four vectors of eight, then in one of four, then one by one."""
    products, total = a * b, a.dtype.type(0)
    for width, lanes in ((32, 8), (4, 4), (1, 1)):
        count = len(products) // width * width
        now, products = products[:count].reshape(-1, width), products[count:]
        sums = np.zeros(width, a.dtype)
        sums[0] = total
        for row in now:
            sums += row
        vectors = sums.reshape(-1, lanes)
        sums = vectors[0]
        for vector in vectors[1:]:
            sums = sums + vector
        while len(sums) > 1:
            sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
        total = sums[0]
    return total


@pytest.mark.parametrize("count", [*range(70), 256, 300])
def test_a_dot_product_is_summed_in_the_order_of_the_recorded_runs(count: int) -> None:
    # Products of twelve bits by twelve are exact, so that only the order of the sums can matter.
    random = np.random.default_rng(count)
    a, b = random.integers(-4095, 4096, (2, 303)).astype(np.float32)
    assert compiled_dot(a[3 : 3 + count], b[:count]) == by_hand(a[3 : 3 + count], b[:count])


def test_another_order_would_be_another_number() -> None:
    a, b = np.random.default_rng(0).integers(-4095, 4096, (2, 256)).astype(np.float32)
    assert by_hand(a, b) != by_hand(a[::-1], b[::-1])
