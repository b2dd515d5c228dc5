"""Scalar code in tile IR: inserts ops, and computes coordinates of blocks."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.polynomial import Atom, Polynomial
from tilewright.ir.builder import Builder
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import I32
from tilewright.ops.arith import Add, Cast, Constant, Mul
from tilewright.ops.nvidia import LoadBlock
from tilewright.targets.nvidia.tensor_copies import TensorCopy


class ScalarCode(Builder):
    """Inserts ops into a region: before `before`, or at the end if that is None.

    Args:
        like: new ops have its location.
    """

    def __init__(self, region: Region, like: Op, before: Op | None = None) -> None:
        super().__init__(region)
        self.anchor = before
        self.loc = like.loc

    def number(self, value: int) -> Value:
        return self.value(Constant(value, I32))

    def plus(self, value: Value, number: int) -> Value:
        return self.value(Add(value, self.number(number))) if number else value

    def narrow(self, value: Value) -> Value:
        """An integer in 32 bits, which are enough for a coordinate in any tensor."""
        return value if value.type == I32 else self.value(Cast(value, I32, "rtne"))

    def polynomial(self, polynomial: Polynomial, value_of: Callable[[Atom], Value]) -> Value:
        """The value of a polynomial, in 32 bits, where `value_of` computes its atoms."""
        total: Value | None = None
        for coefficient, factors in polynomial.terms:
            product: Value | None = None
            for factor in factors:
                value = self.narrow(value_of(factor))
                product = value if product is None else self.value(Mul(product, value))
            if product is None:
                product = self.number(coefficient)
            elif coefficient != 1:
                product = self.value(Mul(product, self.number(coefficient)))
            total = product if total is None else self.value(Add(total, product))
        return self.number(0) if total is None else total

    def load_block(
        self,
        copy: TensorCopy,
        buffer: Value,
        barriers: Value,
        index: Value,
        value_of: Callable[[Atom], Value],
    ) -> Op:
        """A tensor copy as an op, which completes a phase of a barrier."""
        op = LoadBlock(
            copy.base,
            list(copy.args),
            [self.polynomial(begin, value_of) for begin in copy.begins],
            buffer,
            barriers,
            index,
            copy.offset,
            copy.extents,
            copy.strides,
            copy.axes,
            copy.within,
        )
        return self.insert(op)
