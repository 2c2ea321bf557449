"""Matrix products for the fused engine: small tiles that stay in the processor's registers.

A library's matrix product first copies its operands into an order that it likes. Here the
transitions of a batch already stand in that order: sixteen of them make a *panel*, in which
each unit of a layer is sixteen numbers in a row, one per transition, its *lanes*.

    panel[unit, lane]                           lanes of 16: one or two vector registers
    tile:  out[0:6, lane] += a[0:6, k] * panel[k, lane]      for k = 0, 1, 2 ...

Each step of k takes one row of the panel and six numbers of the other operand, spread over
all lanes: twelve multiply-adds with AVX2, and nothing is written before the last k. Every
number is summed in the order of k, whichever tile it is in, so that no result depends on how
the work is divided. (An action for one state is a dot product per unit, in an order of its own.)

The operands are views of NumPy arrays, with any strides: a transposed matrix is `weight.T`.
Elsewhere in this package Numba chooses the machine code. Here LLVM's vector instructions are
written out (vectors.py): a compiler must not choose the order of sums, nor leave the registers.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal, NamedTuple, cast

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.vectors import LANES, Code, Operand

HEIGHT = 6  # rows of a tile; rows that are left over are done in lower tiles
_HEIGHTS = (HEIGHT, 4, 2, 1)
Finish = Literal["linear", "relu", "masked", "plain", "added"]


class _Product(NamedTuple):
    """out[row, lane] = the sum of a[row, k] * b[k, lane], over k.

    With one dimension more: the sum of a[panel, row, k] * b[panel, k, lane], over panels, then k,
    which is then a lane too.
    """

    out: Operand
    a: Operand
    b: Operand
    extra: Operand


def _tile(code: Code, product: _Product, finish: Finish, first: Any, height: int) -> None:
    """Write a tile of some rows of a product; `finish` says how it starts and how it is stored.

    linear   starts from extra[row], the bias
    relu     the same, and stores 0 for what is below 0
    masked   starts from 0, and stores 0 where extra[row, lane], the output of a ReLU, is 0
    plain    starts from 0
    added    starts from extra[row, lane], which may be the output itself
    """
    builder, (out, a, b, extra) = code.builder, product
    zero = code.all_lanes(0.0)
    rows = [builder.add(first, code.count(i)) for i in range(height)]
    starts = [zero] * height
    if finish in ("linear", "relu"):
        starts = [code.spread(code.address(extra, row)) for row in rows]
    elif finish == "added":
        starts = [code.load(code.address(extra, row)) for row in rows]
    sums = [code.variable(start) for start in starts]
    # Of panels there is one, if the operands have no dimension for them.
    some = a.strides[:-2], b.strides[:-2]
    numbers = [code.moved(a.data, a.strides[-2:], row) for row in rows]
    with cgutils.for_range(builder, a.shape[0] if some[0] else code.count(1)) as outer:
        a_panel, b_panel = (
            builder.mul(outer.index, strides[0]) if strides else code.count(0) for strides in some
        )
        with cgutils.for_range(builder, a.shape[-1]) as inner:
            step = builder.mul(inner.index, b.strides[-2])
            panel = code.load(code.moved(b.data, [code.count(1)], builder.add(b_panel, step)))
            step = builder.add(a_panel, builder.mul(inner.index, a.strides[-1]))
            for number, total in zip(numbers, sums):
                weight = code.spread(code.moved(number, [code.count(1)], step))
                builder.store(code.multiply_add(weight, panel, builder.load(total)), total)
    for row, total in zip(rows, sums):
        result = builder.load(total)
        if finish == "relu":  # a nan is not below 0, and stays
            below = builder.fcmp_ordered("<", result, zero)
            result = builder.select(below, zero, result)
        if finish == "masked":
            unit = code.load(code.address(extra, row))
            on = builder.fcmp_unordered(">", unit, zero)  # a nan is not hidden
            result = builder.select(on, result, zero)
        code.store(result, code.address(out, row))


def _product(finish: Finish) -> Callable[[Array, Array, Array, Array], None]:
    """Generate a product: as many tiles as its height takes."""

    @intrinsic  # type: ignore[untyped-decorator]
    def product(typing: Any, out: Any, a: Any, b: Any, extra: Any) -> Any:
        kinds = out, a, b, extra

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            code = Code(context, builder, out.dtype)
            in_panels = False, a.ndim == 3, True, extra.ndim > 1
            arrays = _Product(
                *(code.array(k, v, panels=p) for k, v, p in zip(kinds, values, in_panels))
            )
            row, left = code.count(0), arrays.out.shape[0]
            for height in _HEIGHTS:
                tiles = builder.udiv(left, code.count(height))
                with cgutils.for_range(builder, tiles) as loop:
                    first = builder.add(row, code.times(loop.index, height))
                    _tile(code, arrays, finish, first, height)
                done = code.times(tiles, height)
                row, left = builder.add(row, done), builder.sub(left, done)
            return context.get_dummy_value()

        return numba.void(*kinds), generate

    return cast(Callable[[Array, Array, Array, Array], None], product)


_linear, _relu, _masked, _plain, _added = (
    _product(f) for f in ("linear", "relu", "masked", "plain", "added")
)


@compiled
def linear(out: Array, weight: Array, x: Array, bias: Array) -> None:
    """out = weight @ x + bias, for one panel."""
    _linear(out, weight, x, bias)


@compiled
def relu(out: Array, weight: Array, x: Array, bias: Array) -> None:
    """out = max(weight @ x + bias, 0), for one panel."""
    _relu(out, weight, x, bias)


@compiled
def masked(out: Array, a: Array, b: Array, units: Array) -> None:
    """out = a @ b where `units`, the outputs of a ReLU, are above 0, and 0 elsewhere."""
    _masked(out, a, b, units)


@compiled
def product(out: Array, a: Array, b: Array) -> None:
    """out = a @ b; if both are panels, the sum of this over all panels."""
    _plain(out, a, b, b)


@compiled
def add_product(out: Array, a: Array, b: Array) -> None:
    """out += a @ b, for one panel."""
    _added(out, a, b, out)


def _sum_of_lanes(code: Code, factors: list[Operand]) -> Any:
    """The sum over the panels, then over the lanes, each in order; products are rounded first."""
    builder = code.builder
    total = code.variable(code.all_lanes(0.0))
    with cgutils.for_range(builder, factors[0].shape[0]) as loop:
        values = [code.load(code.address(factor, loop.index)) for factor in factors]
        value = reduce(builder.fmul, values)
        builder.store(builder.fadd(builder.load(total), value), total)
    lanes = builder.load(total)
    return reduce(builder.fadd, [code.lane(lanes, i) for i in range(LANES)])


@intrinsic  # type: ignore[untyped-decorator]
def sum_lanes(typing: Any, a: Any) -> Any:
    """The sum of a[panel, lane]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, a.dtype)
        return _sum_of_lanes(code, [code.array(a, values[0])])

    return a.dtype(a), generate


@intrinsic  # type: ignore[untyped-decorator]
def sum_products(typing: Any, a: Any, b: Any) -> Any:
    """The sum of a[panel, lane] * b[panel, lane]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, a.dtype)
        return _sum_of_lanes(code, [code.array(*pair) for pair in zip((a, b), values)])

    return a.dtype(a, b), generate


@intrinsic  # type: ignore[untyped-decorator]
def transpose(typing: Any, out: Any, a: Any) -> Any:
    """out[lane, unit] = a[unit, lane], for sixteen of each."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, out.dtype)
        to, source = (code.array(*pair) for pair in zip((out, a), values))
        rows = [code.load(code.address(source, code.count(i))) for i in range(LANES)]
        # Rows i and i + step swap every other `step` lanes; after all steps, it is transposed.
        for step in (1, 2, 4, 8):
            lower = [i if not i & step else i - step + LANES for i in range(LANES)]
            upper = [i + step if not i & step else i + LANES for i in range(LANES)]
            for i in range(LANES):
                if not i & step:
                    pair = rows[i], rows[i + step]
                    rows[i], rows[i + step] = code.shuffle(*pair, lower), code.shuffle(*pair, upper)
        for i, row in enumerate(rows):
            code.store(row, code.address(to, code.count(i)))
        return context.get_dummy_value()

    return numba.void(out, a), generate


def _dot(lanes: int, registers: int) -> Callable[..., Any]:
    """Generate a part of a dot product: some registers of some lanes at a step."""

    @intrinsic  # type: ignore[untyped-decorator]
    def part(typing: Any, a: Any, b: Any, start: Any, steps: Any, total: Any) -> Any:
        """`total` plus the sum of a[start + i] * b[start + i], for all i of these steps."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            code = Code(context, builder, a.dtype, lanes)
            arrays = [code.array(*pair) for pair in zip((a, b), values)]
            nothing = code.all_lanes(-0.0)  # a number that it is added to keeps its bits
            first = builder.insert_element(nothing, values[4], ir.Constant(ir.IntType(32), 0))
            sums = [code.variable(vector) for vector in [first, *[nothing] * (registers - 1)]]
            with cgutils.for_range(builder, values[3]) as loop:
                step = builder.add(values[2], code.times(loop.index, lanes * registers))
                for register, total in enumerate(sums):
                    at = builder.add(step, code.count(lanes * register))
                    one, other = (code.load(code.address(array, at)) for array in arrays)
                    builder.store(code.multiply_add(one, other, builder.load(total)), total)
            result = reduce(builder.fadd, [builder.load(place) for place in sums])
            half = lanes // 2
            while half:  # the upper half of the lanes to the lower one, until one is left
                low, high = list(range(half)), list(range(half, 2 * half))
                halves = code.shuffle(result, result, low), code.shuffle(result, result, high)
                result, half = builder.fadd(*halves), half // 2
            return code.lane(result, 0)

        return a.dtype(a, b, numba.intp, numba.intp, a.dtype), generate

    return cast(Callable[..., Any], part)


# The order that LLVM chose for vectors of 256 bits, when it was free to choose. Recorded runs were
# made with it; another order would be as good, but would change every run.
_dot32, _dot4, _dot1 = _dot(8, 4), _dot(4, 1), _dot(1, 1)


@compiled
def dot(a: Array, b: Array) -> Any:
    """The sum of a[i] * b[i]: 32 at a step, then four, then one by one.

    A compiler that may choose the order takes as many at a step as the processor's vectors hold, so
    that the last bits of an action would depend on the kind of processor.
    """
    count = a.size
    total = _dot32(a, b, 0, count // 32, a.dtype.type(0))
    done = count // 32 * 32
    total = _dot4(a, b, done, (count - done) // 4, total)
    done = count // 4 * 4
    return _dot1(a, b, done, count - done, total)
