"""Between two products: activations, LayerNorm and AvgL1Norm, on rows of a panel, and the way back.

ReLUs are part of a product (tiles.py), unless a LayerNorm stands between. All else is done here, a
row of sixteen lanes at a time, in LLVM's vector instructions: the C library's `tanh` takes one
number at a time. Every formula is rounded operation by operation, so that its bits are the
same on any processor.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from t3d.base.compiling import compiled
from t3d.base.numbers import Array
from t3d.learn.fused.plan import ELU, RELU, TANH
from t3d.learn.fused.vectors import Code

EPSILON = 1e-5  # PyTorch's, under the root of a LayerNorm
SMALLEST = 1e-8  # that an AvgL1Norm divides by
LOWEST = -40.0  # exp of this is lost next to 1, in double precision too
# By precision: the two parts of log(2), of which the first has few digits, and how many terms of
# the series of exp are needed up to half of it.
LOG2 = {
    32: (0.693359375, -2.12194440e-4, 7),
    64: (6.93147180369123816490e-01, 1.90821492927058770002e-10, 13),
}


def _expm1(code: Code, x: Any) -> Any:
    """exp(x) - 1 for x from LOWEST to 0: exp(x) = 2^k exp(r), with r as near to 0 as it can be."""
    builder = code.builder
    high, low, terms = LOG2[code.bits]
    integers = ir.VectorType(ir.IntType(code.bits), code.lanes)
    nearest = builder.fsub(builder.fmul(x, code.all_lanes(1 / math.log(2))), code.all_lanes(0.5))
    k = builder.fptosi(nearest, integers)  # towards 0
    times = builder.sitofp(k, code.vector)
    r = builder.fsub(x, builder.fmul(times, code.all_lanes(high)))
    r = builder.fsub(r, builder.fmul(times, code.all_lanes(low)))
    series = code.all_lanes(1 / math.factorial(terms))
    for term in range(terms - 1, 1, -1):
        series = builder.fadd(builder.fmul(series, r), code.all_lanes(1 / math.factorial(term)))
    small = builder.fadd(r, builder.fmul(builder.fmul(r, r), series))  # exp(r) - 1
    bias, shift = {32: (127, 23), 64: (1023, 52)}[code.bits]
    exponent = builder.add(k, ir.Constant(integers, [bias] * code.lanes))
    shifted = builder.shl(exponent, ir.Constant(integers, [shift] * code.lanes))
    power = builder.bitcast(shifted, code.vector)  # 2^k
    return builder.fadd(builder.fmul(power, small), builder.fsub(power, code.all_lanes(1.0)))


def _in_range(code: Code, x: Any) -> Any:
    """Numbers from LOWEST to 0, whatever x is."""
    zero, lowest = code.all_lanes(0.0), code.all_lanes(LOWEST)
    x = code.builder.select(code.builder.fcmp_ordered("<", x, zero), x, zero)
    return code.builder.select(code.builder.fcmp_ordered(">", x, lowest), x, lowest)


def _relu(code: Code, x: Any, _: Any) -> Any:
    zero = code.all_lanes(0.0)
    return code.builder.select(code.builder.fcmp_ordered("<", x, zero), zero, x)


def _elu(code: Code, x: Any, _: Any) -> Any:
    below = code.builder.fcmp_ordered("<", x, code.all_lanes(0.0))  # a nan stays
    return code.builder.select(below, _expm1(code, _in_range(code, x)), x)


def _tanh(code: Code, x: Any, _: Any) -> Any:
    builder = code.builder
    twice = builder.fmul(code.call("fabs", x), code.all_lanes(-2.0))
    e = _expm1(code, _in_range(code, twice))
    size = builder.fdiv(builder.fneg(e), builder.fadd(e, code.all_lanes(2.0)))
    squashed = code.call("copysign", size, x)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, squashed)


def _through_relu(code: Code, gradient: Any, unit: Any) -> Any:
    zero = code.all_lanes(0.0)
    on = code.builder.fcmp_unordered(">", unit, zero)
    return code.builder.select(on, gradient, zero)


def _through_elu(code: Code, gradient: Any, unit: Any) -> Any:
    builder, one = code.builder, code.all_lanes(1.0)
    above = builder.fcmp_ordered(">", unit, code.all_lanes(0.0))
    derivative = builder.select(above, one, builder.fadd(unit, one))
    # That is exp(x) from exp(x) - 1: off by up to one unit in the last place of 1, not of exp(x).
    return builder.fmul(gradient, derivative)


def _through_tanh(code: Code, gradient: Any, unit: Any) -> Any:
    derivative = code.builder.fsub(code.all_lanes(1.0), code.builder.fmul(unit, unit))
    return code.builder.fmul(gradient, derivative)


def _each_row(formula: Callable[[Code, Any, Any], Any]) -> Callable[[Array, Array], None]:
    """Generate a loop over rows: rows[i] = formula(rows[i], others[i])."""

    @intrinsic  # type: ignore[untyped-decorator]
    def loop_over_rows(typing: Any, rows: Any, others: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            code = Code(context, builder, rows.dtype)
            mine, theirs = (code.array(*pair) for pair in zip((rows, others), values))
            with cgutils.for_range(builder, mine.shape[0]) as loop:
                place = code.address(mine, loop.index)
                other = code.load(code.address(theirs, loop.index))
                code.store(formula(code, code.load(place), other), place)
            return context.get_dummy_value()

        return numba.void(rows, others), generate

    return cast(Callable[[Array, Array], None], loop_over_rows)


_relu_rows, _elu_rows, _tanh_rows = _each_row(_relu), _each_row(_elu), _each_row(_tanh)
_back_relu, _back_elu = _each_row(_through_relu), _each_row(_through_elu)
_back_tanh = _each_row(_through_tanh)


@compiled
def activate(units: Array, activation: int) -> None:
    """The activation function on all units of a layer, in place."""
    if activation == RELU:
        _relu_rows(units, units)
    elif activation == ELU:
        _elu_rows(units, units)
    elif activation == TANH:
        _tanh_rows(units, units)


@compiled
def back_through_activation(gradients: Array, units: Array, activation: int) -> None:
    """From the gradient by a layer's activations, `units`, to that by what went into them."""
    if activation == RELU:
        _back_relu(gradients, units)
    elif activation == ELU:
        _back_elu(gradients, units)
    elif activation == TANH:
        _back_tanh(gradients, units)


def _mean_of_rows(code: Code, rows: Any, value: Callable[[Any], Any]) -> Any:
    """The mean of value(i) over so many rows, lane by lane, added in the order of rows."""
    builder = code.builder
    total = code.variable(code.all_lanes(0.0))
    with cgutils.for_range(builder, rows) as loop:
        builder.store(builder.fadd(builder.load(total), value(loop.index)), total)
    return builder.fdiv(builder.load(total), code.in_all_lanes(builder.sitofp(rows, code.number)))


@intrinsic  # type: ignore[untyped-decorator]
def layer_norm(typing: Any, units: Any, standard: Any, inverse: Any, gain: Any, shift: Any) -> Any:
    """units = gain * (units - mean) / std + shift; keeps the quotient, and 1 / std."""
    kinds = units, standard, inverse, gain, shift

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, units.dtype)
        to, kept, scale, gains, shifts = (code.array(*pair) for pair in zip(kinds, values))
        rows = to.shape[0]
        mean = _mean_of_rows(code, rows, lambda row: code.load(code.address(to, row)))

        def square(row: Any) -> Any:
            centred = builder.fsub(code.load(code.address(to, row)), mean)
            return builder.fmul(centred, centred)

        variance = builder.fadd(_mean_of_rows(code, rows, square), code.all_lanes(EPSILON))
        over = builder.fdiv(code.all_lanes(1.0), code.call("sqrt", variance))
        code.store(over, code.address(scale, code.count(0)))
        with cgutils.for_range(builder, rows) as loop:
            place = code.address(to, loop.index)
            number = builder.fmul(builder.fsub(code.load(place), mean), over)
            code.store(number, code.address(kept, loop.index))
            number = builder.fmul(number, code.spread(code.address(gains, loop.index)))
            number = builder.fadd(number, code.spread(code.address(shifts, loop.index)))
            code.store(number, place)
        return context.get_dummy_value()

    return numba.void(*kinds), generate


@intrinsic  # type: ignore[untyped-decorator]
def back_through_norm(
    typing: Any, gradients: Any, kept: Any, standard: Any, inverse: Any, gain: Any
) -> Any:
    """From the gradient by a LayerNorm's outputs, which is kept, to that by its inputs."""
    kinds = gradients, kept, standard, inverse, gain

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, gradients.dtype)
        to, copy, quotient, scale, gains = (code.array(*pair) for pair in zip(kinds, values))
        rows = to.shape[0]

        def by_quotient(row: Any) -> Any:
            gradient = code.load(code.address(to, row))
            return builder.fmul(gradient, code.spread(code.address(gains, row)))

        def along(row: Any) -> Any:
            return builder.fmul(by_quotient(row), code.load(code.address(quotient, row)))

        mean, mean_along = _mean_of_rows(code, rows, by_quotient), _mean_of_rows(code, rows, along)
        over = code.load(code.address(scale, code.count(0)))
        with cgutils.for_range(builder, rows) as loop:
            row = loop.index
            place = code.address(to, row)
            code.store(code.load(place), code.address(copy, row))
            rest = builder.fsub(by_quotient(row), mean)
            moved = builder.fmul(code.load(code.address(quotient, row)), mean_along)
            code.store(builder.fmul(over, builder.fsub(rest, moved)), place)
        return context.get_dummy_value()

    return numba.void(*kinds), generate


@intrinsic  # type: ignore[untyped-decorator]
def avg_l1_norm(typing: Any, units: Any, divisor: Any) -> Any:
    """units = units / the mean of their absolute values, lane by lane; keeps the divisor."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, units.dtype)
        to, kept = (code.array(*pair) for pair in zip((units, divisor), values))
        rows, smallest = to.shape[0], code.all_lanes(SMALLEST)

        def size(row: Any) -> Any:
            return code.call("fabs", code.load(code.address(to, row)))

        mean = _mean_of_rows(code, rows, size)
        mean = builder.select(builder.fcmp_ordered("<", mean, smallest), smallest, mean)
        code.store(mean, code.address(kept, code.count(0)))
        with cgutils.for_range(builder, rows) as loop:
            place = code.address(to, loop.index)
            code.store(builder.fdiv(code.load(place), mean), place)
        return context.get_dummy_value()

    return numba.void(units, divisor), generate


@intrinsic  # type: ignore[untyped-decorator]
def back_through_avg_l1_norm(typing: Any, gradients: Any, units: Any, divisor: Any) -> Any:
    """From the gradient by an AvgL1Norm's outputs, `units`, to that by its inputs."""
    kinds = gradients, units, divisor

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, gradients.dtype)
        to, outputs, kept = (code.array(*pair) for pair in zip(kinds, values))
        rows, zero, one = to.shape[0], code.all_lanes(0.0), code.all_lanes(1.0)
        mean = code.load(code.address(kept, code.count(0)))

        def along(row: Any) -> Any:
            pair = code.load(code.address(to, row)), code.load(code.address(outputs, row))
            return builder.fmul(*pair)

        # At the smallest divisor, it is a constant.
        constant = builder.fcmp_ordered("==", mean, code.all_lanes(SMALLEST))
        through_mean = builder.select(constant, zero, _mean_of_rows(code, rows, along))
        with cgutils.for_range(builder, rows) as loop:
            place = code.address(to, loop.index)
            unit = code.load(code.address(outputs, loop.index))
            sign = code.call("copysign", one, unit)
            sign = builder.select(builder.fcmp_ordered("==", unit, zero), zero, sign)
            rest = builder.fsub(code.load(place), builder.fmul(sign, through_mean))
            code.store(builder.fdiv(rest, mean), place)
        return context.get_dummy_value()

    return numba.void(*kinds), generate
