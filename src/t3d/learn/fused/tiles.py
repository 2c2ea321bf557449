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
written out (`_Code`): a compiler must not choose the order of sums, nor leave the registers.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal, NamedTuple, cast

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from t3d.base.compiling import compiled
from t3d.base.numbers import Array

LANES = 16
HEIGHT = 6  # rows of a tile; rows that are left over are done in lower tiles
_HEIGHTS = (HEIGHT, 4, 2, 1)
Finish = Literal["linear", "relu", "masked", "plain"]


class _Code:
    """Writes LLVM instructions on vectors of some lanes into the function of a builder."""

    def __init__(self, context: Any, builder: Any, number: Any, lanes: int = LANES) -> None:
        self.context = context
        self.builder = builder
        self.lanes = lanes
        self.bits = number.bitwidth
        self.number = context.get_data_type(number)
        self.vector = ir.VectorType(self.number, lanes)
        self.integer = context.get_value_type(numba.intp)

    def count(self, number: int) -> Any:
        return ir.Constant(self.integer, number)

    def all_lanes(self, number: float) -> Any:
        return ir.Constant(self.vector, [number] * self.lanes)

    def times(self, value: Any, constant: int) -> Any:
        return self.builder.mul(value, self.count(constant))

    def array(self, kind: Any, value: Any, *, panels: bool = False) -> "_Operand":
        """An array of Numba's: where it begins, its shape, and its strides in bytes.

        The compiler makes better code of those that it knows. `panels` are rows of LANES numbers.
        """
        array = self.context.make_array(kind)(self.context, self.builder, value)
        shape, strides = (
            cgutils.unpack_tuple(self.builder, sizes, kind.ndim)
            for sizes in (array.shape, array.strides)
        )
        if panels:
            shape[-1] = self.count(LANES)
            strides[-2:] = self.count(LANES * self.bits // 8), self.count(self.bits // 8)
        elif kind.layout == "C":
            strides[-1] = self.count(self.bits // 8)
        elif kind.layout == "F":
            strides[0] = self.count(self.bits // 8)
        return _Operand(array.data, shape, strides)

    def address(self, array: "_Operand", *index: Any) -> Any:
        """Where a number of an array is; indices that are left off are 0."""
        return self.moved(array.data, array.strides, *index)

    def moved(self, place: Any, strides: list[Any], *index: Any) -> Any:
        offsets = [self.builder.mul(i, stride) for i, stride in zip(index, strides)]
        place = self.builder.bitcast(place, ir.IntType(8).as_pointer())
        place = self.builder.gep(place, [reduce(self.builder.add, offsets)])
        return self.builder.bitcast(place, self.number.as_pointer())

    def load(self, place: Any) -> Any:
        """The numbers that begin at an address, one per lane."""
        pointer = self.builder.bitcast(place, self.vector.as_pointer())
        return self.builder.load(pointer, align=self.bits // 8)

    def store(self, vector: Any, place: Any) -> None:
        pointer = self.builder.bitcast(place, self.vector.as_pointer())
        self.builder.store(vector, pointer, align=self.bits // 8)

    def spread(self, place: Any) -> Any:
        """The one number at an address, in all lanes."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        number = self.builder.load(place)
        first = self.builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
        return self.shuffle(first, nothing, [0] * self.lanes)

    def shuffle(self, one: Any, other: Any, lanes: list[int]) -> Any:
        """The lanes of two vectors that have these numbers; the other's begin at `self.lanes`."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self.builder.shuffle_vector(one, other, mask)

    def lane(self, vector: Any, number: int) -> Any:
        return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), number))

    def multiply_add(self, one: Any, other: Any, total: Any) -> Any:
        """one * other + total, rounded once where the processor can."""
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fmuladd.v{self.lanes}f{self.bits}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [one, other, total])

    def variable(self, start: Any) -> Any:
        """A variable that holds a vector; the optimiser keeps it in registers."""
        place = cgutils.alloca_once(self.builder, self.vector)
        self.builder.store(start, place)
        return place


class _Operand(NamedTuple):
    data: Any
    shape: list[Any]
    strides: list[Any]


class _Product(NamedTuple):
    """out[row, lane] = the sum of a[row, k] * b[k, lane], over k.

    With one dimension more: the sum of a[panel, row, k] * b[panel, k, lane], over panels, then k,
    which is then a lane too.
    """

    out: _Operand
    a: _Operand
    b: _Operand
    extra: _Operand


def _tile(code: _Code, product: _Product, finish: Finish, first: Any, height: int) -> None:
    """Write a tile of some rows of a product; `finish` says how it starts and how it is stored.

    linear   starts from extra[row], the bias
    relu     the same, and stores 0 for what is below 0
    masked   starts from 0, and stores 0 where extra[row, lane], the output of a ReLU, is 0
    plain    starts from 0
    """
    builder, (out, a, b, extra) = code.builder, product
    zero = code.all_lanes(0.0)
    rows = [builder.add(first, code.count(i)) for i in range(height)]
    biased = finish in ("linear", "relu")
    sums = [
        code.variable(code.spread(code.address(extra, row)) if biased else zero) for row in rows
    ]
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
            code = _Code(context, builder, out.dtype)
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


_linear, _relu, _masked, _plain = (_product(f) for f in ("linear", "relu", "masked", "plain"))


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


def _sum_of_lanes(code: _Code, factors: list[_Operand]) -> Any:
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
        code = _Code(context, builder, a.dtype)
        return _sum_of_lanes(code, [code.array(a, values[0])])

    return a.dtype(a), generate


@intrinsic  # type: ignore[untyped-decorator]
def sum_products(typing: Any, a: Any, b: Any) -> Any:
    """The sum of a[panel, lane] * b[panel, lane]."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = _Code(context, builder, a.dtype)
        return _sum_of_lanes(code, [code.array(*pair) for pair in zip((a, b), values)])

    return a.dtype(a, b), generate


@intrinsic  # type: ignore[untyped-decorator]
def transpose(typing: Any, out: Any, a: Any) -> Any:
    """out[lane, unit] = a[unit, lane], for sixteen of each."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = _Code(context, builder, out.dtype)
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
            code = _Code(context, builder, a.dtype, lanes)
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


@intrinsic  # type: ignore[untyped-decorator]
def view(typing: Any, flat: Any, start: Any, shape: Any) -> Any:
    """A part of a flat array in another shape: flat[start:].reshape(shape), without its checks.

    It is not counted as a reference to the array, which must outlive it.
    """
    kind = numba.types.Array(flat.dtype, shape.count, "C")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = _Code(context, builder, flat.dtype)
        array = code.array(flat, values[0])
        sizes = cgutils.unpack_tuple(builder, values[2], shape.count)
        strides = [code.count(code.bits // 8)]
        for size in reversed(sizes[1:]):
            strides.insert(0, builder.mul(size, strides[0]))
        out = context.make_array(kind)(context, builder)
        data = code.address(array, values[1])
        populate_array(out, data, sizes, strides, code.count(code.bits // 8), None)
        return out._getvalue()

    return kind(flat, numba.intp, shape), generate
