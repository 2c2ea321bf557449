"""Matrix products for the fused engine: small tiles that stay in the processor's registers.

A library's matrix product first copies its operands into an order that it likes. Here the
transitions of a batch already stand in that order: sixteen side by side make a *panel*, in
which each unit of a layer is sixteen numbers in a row, one per transition, its *lanes*.

    panel[unit, lane]                           lanes of 16: one or two vector registers
    tile:  out[0:6, lane] += a[0:6, k] * panel[k, lane]      for k = 0, 1, 2 ...

Each step of k takes one row of the panel and six numbers of the other operand, spread over
all lanes: twelve multiply-adds with AVX2, and nothing is written before the last k. Every
number is summed in the order of k, whichever tile it is in, so that no result depends on how
the work is cut up. (An action for one state is a dot product per unit, in an order of its own.)
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal, cast

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from t3d.base.compiling import compiled
from t3d.base.numbers import Array

LANES = 16
HEIGHT = 6  # rows of a tile; rows that are left over are done in lower tiles
Finish = Literal["linear", "relu", "slope", "plain"]


def _multiply_add(builder: Any, vector: Any, bits: int) -> Any:
    """The function that gives a * b + c of vectors, rounded once where the processor can."""
    kind = ir.FunctionType(vector, [vector] * 3)
    name = f"llvm.fmuladd.v{vector.count}f{bits}"
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _tile(height: int, finish: Finish) -> Callable[..., None]:
    """Generate a tile of so many rows; `finish` says how it starts and how it is stored.

    linear   starts from extra[row], the bias
    relu     the same, and stores 0 for what is below 0
    slope    starts from 0, and stores 0 where extra[row, lane], the output of a ReLU, is 0
    plain    starts from 0
    """
    names = "out out_at out_row a a_at a_row a_step a_panel b b_at panels count extra extra_at"
    order = names.split()

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(
        typing: Any,
        out: Any,
        out_at: Any,
        out_row: Any,
        a: Any,
        a_at: Any,
        a_row: Any,
        a_step: Any,
        a_panel: Any,
        b: Any,
        b_at: Any,
        panels: Any,
        count: Any,
        extra: Any,
        extra_at: Any,
    ) -> Any:
        """out[row, lane] = the sum of a[row, panel, k] * b[panel, k, lane], panels by panels."""
        arrays = {"out": out, "a": a, "b": b, "extra": extra}
        signature = numba.void(*(arrays.get(name, numba.intp) for name in order))

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            given = dict(zip(order, values))
            number = context.get_data_type(out.dtype)
            bits = out.dtype.bitwidth
            vector = ir.VectorType(number, LANES)
            lane = ir.IntType(32)
            zero = ir.Constant(vector, [0.0] * LANES)
            nothing = ir.Constant(vector, ir.Undefined)
            first_lane = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)
            multiply_add = _multiply_add(builder, vector, bits)

            def times(value: Any, constant: int) -> Any:
                return builder.mul(value, ir.Constant(value.type, constant))

            def address(name: str, *offsets: Any) -> Any:
                data = context.make_array(arrays[name])(context, builder, given[name]).data
                return builder.gep(data, [reduce(builder.add, offsets, given[f"{name}_at"])])

            def as_vector(place: Any) -> Any:
                return builder.bitcast(place, vector.as_pointer())

            def load(place: Any) -> Any:
                return builder.load(as_vector(place), align=bits // 8)

            def spread(place: Any) -> Any:
                value = builder.load(place)
                first = builder.insert_element(nothing, value, ir.Constant(lane, 0))
                return builder.shuffle_vector(first, nothing, first_lane)

            sums = [cgutils.alloca_once(builder, vector) for _ in range(height)]
            one = ir.Constant(given["count"].type, 1)
            for row, total in enumerate(sums):
                biased = finish in ("linear", "relu")
                start = spread(address("extra", times(one, row))) if biased else zero
                builder.store(start, total)
            rows = [address("a", times(given["a_row"], row)) for row in range(height)]
            with cgutils.for_range(builder, given["panels"]) as outer:
                a_panel = builder.mul(outer.index, given["a_panel"])
                b_panel = builder.mul(outer.index, times(given["count"], LANES))
                with cgutils.for_range(builder, given["count"]) as inner:
                    panel = load(address("b", b_panel, times(inner.index, LANES)))
                    step = builder.add(a_panel, builder.mul(inner.index, given["a_step"]))
                    for row, total in zip(rows, sums):
                        weight = spread(builder.gep(row, [step]))
                        grown = builder.call(multiply_add, [weight, panel, builder.load(total)])
                        builder.store(grown, total)
            for row, total in enumerate(sums):
                result = builder.load(total)
                if finish == "relu":  # a nan is not below 0, and stays
                    below = builder.fcmp_ordered("<", result, zero)
                    result = builder.select(below, zero, result)
                if finish == "slope":
                    unit = load(address("extra", times(one, row * LANES)))
                    on = builder.fcmp_unordered(">", unit, zero)  # a nan is not hidden
                    result = builder.select(on, result, zero)
                to = as_vector(address("out", times(given["out_row"], row)))
                builder.store(result, to, align=bits // 8)
            return context.get_dummy_value()

        return signature, generate

    return cast(Callable[..., None], tile)


def _product(finish: Finish) -> Callable[..., None]:
    """Generate the product of a whole layer: as many tiles as its height takes."""
    tile6, tile4, tile2, tile1 = (_tile(height, finish) for height in (HEIGHT, 4, 2, 1))

    def product(
        height: int,
        out: Array,
        out_at: int,
        out_row: int,
        a: Array,
        a_at: int,
        a_row: int,
        a_step: int,
        a_panel: int,
        b: Array,
        b_at: int,
        panels: int,
        count: int,
        extra: Array,
        extra_at: int,
        extra_row: int,
    ) -> None:
        row = 0
        while row < height:
            o, i, e = out_at + row * out_row, a_at + row * a_row, extra_at + row * extra_row
            left = height - row
            if left >= HEIGHT:
                tile6(
                    out, o, out_row, a, i, a_row, a_step, a_panel, b, b_at, panels, count, extra, e
                )
                row += HEIGHT
            elif left >= 4:
                tile4(
                    out, o, out_row, a, i, a_row, a_step, a_panel, b, b_at, panels, count, extra, e
                )
                row += 4
            elif left >= 2:
                tile2(
                    out, o, out_row, a, i, a_row, a_step, a_panel, b, b_at, panels, count, extra, e
                )
                row += 2
            else:
                tile1(
                    out, o, out_row, a, i, a_row, a_step, a_panel, b, b_at, panels, count, extra, e
                )
                row += 1

    # Compiled code is kept under these names, so no two functions may share one.
    product.__name__ = product.__qualname__ = f"product_{finish}"
    return compiled(product)


_linear, _relu, _slope, _plain = (_product(f) for f in ("linear", "relu", "slope", "plain"))


@compiled
def layer(
    parameters: Array, at: int, ins: int, outs: int, panels: Array, x: int, out: int, last: bool
) -> None:
    """One panel through one layer, with a ReLU behind it unless it is the last.

    `at` is where the layer's weights begin, row by row, with the biases behind them; `x` and
    `out` are where its inputs and its outputs begin in `panels`.
    """
    W, bias = parameters, at + ins * outs
    if last:
        _linear(outs, panels, out, LANES, W, at, ins, 1, 0, panels, x, 1, ins, W, bias, 1)
    else:
        _relu(outs, panels, out, LANES, W, at, ins, 1, 0, panels, x, 1, ins, W, bias, 1)


@compiled
def back(
    parameters: Array, at: int, ins: int, outs: int, panels: Array, slope: int, x: int, out: int
) -> None:
    """One panel back through one layer, and through the ReLU that its inputs `x` came out of.

    `slope` is how the loss grows with each output of the layer; `out` takes the same for the
    layer before.
    """
    W = parameters
    _slope(ins, panels, out, LANES, W, at, 1, ins, 0, panels, slope, 1, outs, panels, x, LANES)


@compiled
def back_to_inputs(
    parameters: Array, at: int, first: int, ins: int, outs: int, panels: Array, slope: int, out: int
) -> None:
    """One panel back through one layer to its inputs themselves, from input `first` on."""
    W, rows = parameters, ins - first
    _plain(rows, panels, out, LANES, W, at + first, 1, ins, 0, panels, slope, 1, outs, W, 0, 0)


@intrinsic  # type: ignore[untyped-decorator]
def _turn_block(typing: Any, out: Any, out_at: Any, a: Any, a_at: Any) -> Any:
    """out[lane, unit] = a[unit, lane], for sixteen of each."""
    signature = numba.void(out, numba.intp, a, numba.intp)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        vector = ir.VectorType(context.get_data_type(out.dtype), LANES)
        align = out.dtype.bitwidth // 8

        def row(kind: Any, array: Any, at: Any, number: int) -> Any:
            data = context.make_array(kind)(context, builder, array).data
            here = builder.add(at, ir.Constant(at.type, number * LANES))
            return builder.bitcast(builder.gep(data, [here]), vector.as_pointer())

        rows = [builder.load(row(a, values[2], values[3], i), align=align) for i in range(LANES)]
        # Rows i and i + step swap every other `step` lanes; when all steps are done, it is turned.
        for step in (1, 2, 4, 8):
            lanes = ir.VectorType(ir.IntType(32), LANES)
            keep = [i if not i & step else i - step + LANES for i in range(LANES)]
            swap = [i + step if not i & step else i + LANES for i in range(LANES)]
            for i in range(LANES):
                if not i & step:
                    pair = rows[i], rows[i + step]
                    rows[i] = builder.shuffle_vector(*pair, ir.Constant(lanes, keep))
                    rows[i + step] = builder.shuffle_vector(*pair, ir.Constant(lanes, swap))
        for i in range(LANES):
            builder.store(rows[i], row(out, values[0], values[1], i), align=align)
        return context.get_dummy_value()

    return signature, generate


@compiled
def turn(
    panels: Array, x: int, pitch: int, width: int, turned: Array, at: int, first: int, last: int
) -> None:
    """Swap units and lanes of some panels: (panel, unit, lane) -> (unit / 16, panel, lane, 16).

    Where the width is not a multiple of sixteen, what stands behind in the panel comes along.
    """
    count = panels.size // pitch
    for panel in range(first, last):
        for unit in range(0, width, LANES):
            to = at + (unit * count + panel * LANES) * LANES
            _turn_block(turned, to, panels, panel * pitch + x + unit * LANES)


@compiled
def gradient(
    panels: Array,
    slope: int,
    pitch: int,
    rows: int,
    turned: Array,
    x: int,
    ins: int,
    out: Array,
    to: int,
) -> None:
    """The gradient of some rows of a layer's weights: slopes times turned inputs, all panels.

    The rows of `out` are padded to whole vectors.
    """
    width, count = padded(ins), panels.size // pitch
    for unit in range(0, width, LANES):
        b = x + unit * count * LANES
        _plain(
            rows, out, to + unit, width, panels, slope, LANES, 1, pitch,
            turned, b, count, LANES, out, 0, 0,
        )  # fmt: skip


@intrinsic  # type: ignore[untyped-decorator]
def add_product(typing: Any, out: Any, out_at: Any, a: Any, a_at: Any, b: Any, b_at: Any) -> Any:
    """out[lane] += a[lane] * b[lane], for sixteen lanes."""
    signature = numba.void(out, numba.intp, a, numba.intp, b, numba.intp)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        vector = ir.VectorType(context.get_data_type(out.dtype), LANES)
        align = out.dtype.bitwidth // 8

        def address(kind: Any, array: Any, at: Any) -> Any:
            data = context.make_array(kind)(context, builder, array).data
            return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())

        places = [address(k, values[i], values[i + 1]) for i, k in ((0, out), (2, a), (4, b))]
        total, one, two = (builder.load(place, align=align) for place in places)
        builder.store(builder.fadd(total, builder.fmul(one, two)), places[0], align=align)
        return context.get_dummy_value()

    return signature, generate


def _dot(lanes: int, registers: int) -> Callable[..., Any]:
    """Generate a part of a dot product: so many registers of so many lanes at a step."""

    @intrinsic  # type: ignore[untyped-decorator]
    def part(typing: Any, a: Any, a_at: Any, b: Any, b_at: Any, steps: Any, total: Any) -> Any:
        """`total` plus the sum of a[a_at + i] * b[b_at + i], for all i of these steps."""
        signature = a.dtype(a, numba.intp, b, numba.intp, numba.intp, a.dtype)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            bits = a.dtype.bitwidth
            vector = ir.VectorType(context.get_data_type(a.dtype), lanes)
            multiply_add = _multiply_add(builder, vector, bits)
            nothing = ir.Constant(vector, [-0.0] * lanes)  # what it is added to keeps its bits
            first = builder.insert_element(nothing, values[5], ir.Constant(ir.IntType(32), 0))
            sums = [cgutils.alloca_once(builder, vector) for _ in range(registers)]
            for place, start in zip(sums, [first, *[nothing] * (registers - 1)]):
                builder.store(start, place)

            def load(kind: Any, array: Any, at: Any, step: Any, register: int) -> Any:
                offset = builder.mul(step, ir.Constant(step.type, lanes * registers))
                offset = builder.add(offset, ir.Constant(step.type, lanes * register))
                data = context.make_array(kind)(context, builder, array).data
                place = builder.gep(data, [builder.add(at, offset)])
                return builder.load(builder.bitcast(place, vector.as_pointer()), align=bits // 8)

            with cgutils.for_range(builder, values[4]) as loop:
                for register, place in enumerate(sums):
                    one = load(a, values[0], values[1], loop.index, register)
                    other = load(b, values[2], values[3], loop.index, register)
                    grown = builder.call(multiply_add, [one, other, builder.load(place)])
                    builder.store(grown, place)
            result = reduce(builder.fadd, [builder.load(place) for place in sums])
            half = lanes // 2
            while half:  # the upper half of the lanes to the lower one, until one is left
                mask = ir.VectorType(ir.IntType(32), half)
                low, high = (
                    builder.shuffle_vector(
                        result, result, ir.Constant(mask, list(range(at, at + half)))
                    )
                    for at in (0, half)
                )
                result, half = builder.fadd(low, high), half // 2
            return builder.extract_element(result, ir.Constant(ir.IntType(32), 0))

        return signature, generate

    return cast(Callable[..., Any], part)


# The order that LLVM chose for vectors of 256 bits, when it might: kept runs were made in it.
# Another would be as good, but every run would be another one.
_dot32, _dot4, _dot1 = _dot(8, 4), _dot(4, 1), _dot(1, 1)


@compiled
def dot(a: Array, a_at: int, b: Array, count: int) -> Any:
    """The sum of a[a_at + i] * b[i], for i below count: 32 at a step, then four, then one by one.

    A compiler that may choose the order takes as many at a step as the processor's vectors hold, so
    that the last bits of an action would depend on the kind of processor.
    """
    total = _dot32(a, a_at, b, 0, count // 32, a.dtype.type(0))
    done = count // 32 * 32
    total = _dot4(a, a_at + done, b, done, (count - done) // 4, total)
    done = count // 4 * 4
    return _dot1(a, a_at + done, b, done, count - done, total)


@compiled
def padded(width: int) -> int:
    """A width in whole vectors."""
    return (width + LANES - 1) // LANES * LANES
