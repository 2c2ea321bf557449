"""LLVM's instructions on vectors, written from Python: what tiles.py is built of."""

from functools import reduce
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

LANES = 16


class Operand(NamedTuple):
    """An array as the instructions see it."""

    data: Any
    shape: list[Any]
    strides: list[Any]


class Code:
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
        """A constant integer."""
        return ir.Constant(self.integer, number)

    def all_lanes(self, number: float) -> Any:
        """A constant number in all lanes."""
        return ir.Constant(self.vector, [number] * self.lanes)

    def times(self, value: Any, constant: int) -> Any:
        """An integer times a constant one."""
        return self.builder.mul(value, self.count(constant))

    def array(self, kind: Any, value: Any, *, panels: bool = False) -> Operand:
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
        return Operand(array.data, shape, strides)

    def address(self, array: Operand, *index: Any) -> Any:
        """Where a number of an array is; indices that are left off are 0."""
        return self.moved(array.data, array.strides, *index)

    def moved(self, place: Any, strides: list[Any], *index: Any) -> Any:
        """An address plus indices times strides."""
        offsets = [self.builder.mul(i, stride) for i, stride in zip(index, strides)]
        place = self.builder.bitcast(place, ir.IntType(8).as_pointer())
        place = self.builder.gep(place, [reduce(self.builder.add, offsets)])
        return self.builder.bitcast(place, self.number.as_pointer())

    def load(self, place: Any) -> Any:
        """The numbers that begin at an address, one per lane."""
        pointer = self.builder.bitcast(place, self.vector.as_pointer())
        return self.builder.load(pointer, align=self.bits // 8)

    def store(self, vector: Any, place: Any) -> None:
        """Write all lanes to an address and behind it."""
        pointer = self.builder.bitcast(place, self.vector.as_pointer())
        self.builder.store(vector, pointer, align=self.bits // 8)

    def spread(self, place: Any) -> Any:
        """The one number at an address, in all lanes."""
        return self.in_all_lanes(self.builder.load(place))

    def in_all_lanes(self, number: Any) -> Any:
        """One number, in all lanes."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
        return self.shuffle(first, nothing, [0] * self.lanes)

    def shuffle(self, one: Any, other: Any, lanes: list[int]) -> Any:
        """The lanes of two vectors that have these numbers; the other's begin at `self.lanes`."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
        return self.builder.shuffle_vector(one, other, mask)

    def lane(self, vector: Any, number: int) -> Any:
        """The number in one lane."""
        return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), number))

    def multiply_add(self, one: Any, other: Any, total: Any) -> Any:
        """one * other + total, rounded once where the processor can."""
        return self.call("fmuladd", one, other, total)

    def call(self, name: str, *vectors: Any) -> Any:
        """One of LLVM's functions of vectors, such as sqrt."""
        kind = ir.FunctionType(self.vector, [self.vector] * len(vectors))
        name = f"llvm.{name}.v{self.lanes}f{self.bits}"
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), vectors
        )

    def variable(self, start: Any) -> Any:
        """A variable that holds a vector; the optimiser keeps it in registers."""
        place = cgutils.alloca_once(self.builder, self.vector)
        self.builder.store(start, place)
        return place


@intrinsic  # type: ignore[untyped-decorator]
def view(typing: Any, flat: Any, start: Any, shape: Any) -> Any:
    """A part of a flat array in another shape: flat[start:].reshape(shape), without its checks.

    It is not counted as a reference to the array, which must outlive it.
    """
    kind = numba.types.Array(flat.dtype, shape.count, "C")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = Code(context, builder, flat.dtype)
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
