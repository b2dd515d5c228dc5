"""Expressions of random computations: trees, which each form of a computation writes differently.

    x = Expression("({} + {})", (a, b), I32, "mn")

Every operation is defined for all values, and its result does not depend on the shape of tiles.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.programs.kinds import ALL, FLOATS, INTEGERS, SIGNED, tl
from tilewright.ir.types import BF16, FP16, FP32, FP64, I1, I32, I64, U32, U64, DType

DEPTH = 4


@dataclass(frozen=True)
class Expression:
    """An operation with its operands, or a name without any.

    Attributes:
        text: with a place ``{}`` for each operand.
        axes: the axes along which elements differ: of "mn", rows and columns.
        may_be_nan: whether its bits are not determined.
    """

    text: str
    operands: tuple[Expression, ...]
    dtype: DType
    axes: str = ""
    may_be_nan: bool = False


def name(text: str, dtype: DType, axes: str = "") -> Expression:
    """A leaf. Bits of floats may be those of a NaN."""
    return Expression(text, (), dtype, axes, not dtype.is_int())


def applied(text: str, operands: Sequence[Expression], dtype: DType) -> Expression:
    """An operation on elements."""
    axes = "".join(sorted({axis for x in operands for axis in x.axes}))
    nan = not dtype.is_int()
    return Expression(text, tuple(operands), dtype, axes, nan)


def cast(x: Expression, dtype: DType) -> Expression:
    """`x` in another type, fp8 by way of fp32."""
    if x.dtype is dtype:
        return x
    if (x.dtype.is_fp8() or dtype.is_fp8()) and FP32 not in (x.dtype, dtype):
        return cast(cast(x, FP32), dtype)
    return applied(f"{{}}.to({tl(dtype)})", (x,), dtype)


def constant(rng: random.Random, dtype: DType) -> Expression:
    """A constant of the type."""
    if dtype is I1:
        value: Any = rng.random() < 0.5
    elif dtype.is_int():
        low, high = dtype.get_int_min_value(), dtype.get_int_max_value()
        value = rng.choice((0, 1, 2, 3, 5, 7, 8, 16, 100, low, high, high - 1, low + 1, -1, -2, -8))
        value = min(max(value, low), high)
    elif dtype.is_fp8() or dtype in (FP16, BF16):
        value = rng.choice((0.0, 1.0, -1.5, 0.25, 3.0))
    else:
        value = rng.choice((0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 1e10, -1e-10, 16777217.0))
    return name(f"tl.full([], {value!r}, {tl(dtype)})", dtype)


class Expressions:
    """Draws expressions from leaves.

    Attributes:
        leaves: what there is so far.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.leaves: list[Expression] = []

    def leaf(self, dtype: DType | None = None) -> Expression:
        """A leaf, cast to the type."""
        rng = self.rng
        if dtype is not None and rng.random() < 0.2:
            return constant(rng, dtype)
        same = [x for x in self.leaves if x.dtype is dtype]
        found = rng.choice(same if same and rng.random() < 0.7 else self.leaves)
        return found if dtype is None else cast(found, dtype)

    def of(self, dtype: DType, depth: int = DEPTH) -> Expression:
        """An expression of the type."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.12:
            return self.leaf(dtype)
        if rng.random() < 0.15:
            return cast(self.of(rng.choice(ALL), depth - 1), dtype)
        if rng.random() < 0.12:
            parts = (self.of(I1, depth - 2), self.of(dtype, depth - 1), self.of(dtype, depth - 2))
            return applied("tl.where({}, {}, {})", parts, dtype)
        if dtype is I1:
            return self._truth(depth)
        if dtype.is_int():
            return rng.choice((self._integer, self._integer, self._quotient, self._shift))(
                dtype, depth
            )
        if dtype in FLOATS:
            return self._float(dtype, depth)
        return self.leaf(dtype)

    def _pair(self, dtype: DType, depth: int) -> tuple[Expression, Expression]:
        return self.of(dtype, depth - 1), self.of(dtype, depth - self.rng.choice((1, 2, 3)))

    def _truth(self, depth: int) -> Expression:
        rng = self.rng
        if rng.random() < 0.3:
            pair = self._pair(I1, depth)
            return applied(rng.choice(("({} & {})", "({} | {})", "({} ^ {})")), pair, I1)
        pair = self._pair(rng.choice((*INTEGERS, I32, *FLOATS)), depth)
        sign = rng.choice(("<", "<=", ">", ">=", "==", "!="))
        return applied(f"({{}} {sign} {{}})", pair, I1)

    def _integer(self, dtype: DType, depth: int) -> Expression:
        rng = self.rng
        if rng.random() < 0.2:
            x = self.of(dtype, depth - 1)
            forms = ["(-{})", "(~{})", "tl.abs({})"]
            text = rng.choice(forms)
            return applied(text, (x,), dtype)
        forms = ["({} + {})", "({} - {})", "({} * {})", "({} & {})", "({} | {})", "({} ^ {})",
                 "tl.minimum({}, {})", "tl.maximum({}, {})"]  # fmt: skip
        if dtype in (I32, I64, U32, U64):
            forms.append("tl.umulhi({}, {})")
        return applied(rng.choice(forms), self._pair(dtype, depth), dtype)

    def _quotient(self, dtype: DType, depth: int) -> Expression:
        """By constants, powers of two or not, sizes, and values that may be 0."""
        rng, sign = self.rng, self.rng.choice(("//", "%"))
        x = self.of(dtype, depth - 1)
        if dtype is I32 and rng.random() < 0.4:
            return applied(f"({{}} {sign} {rng.choice(('N', 'N', 'M', 'K'))})", (x,), dtype)
        if rng.random() < 0.6:
            largest = dtype.get_int_max_value()
            by = rng.choice((1, 2, 3, 4, 5, 7, 8, 10, 16, 25, 32, 60, 64, 100, 127, largest))
            if dtype in SIGNED and rng.random() < 0.3:
                by = -by
            return applied(
                f"({{}} {sign} {by})" if by > 0 else f"({{}} {sign} ({by}))", (x,), dtype
            )
        return applied(f"({{}} {sign} {{}})", (x, self.of(dtype, depth - 2)), dtype)

    def _shift(self, dtype: DType, depth: int) -> Expression:
        rng, sign = self.rng, self.rng.choice(("<<", ">>"))
        x = self.of(dtype, depth - 1)
        if rng.random() < 0.6:
            return applied(f"({{}} {sign} {rng.randrange(dtype.primitive_bitwidth)})", (x,), dtype)
        return applied(f"({{}} {sign} {{}})", (x, self.of(dtype, depth - 2)), dtype)

    def _float(self, dtype: DType, depth: int) -> Expression:
        rng = self.rng
        if rng.random() < 0.2:
            x = self.of(dtype, depth - 1)
            if dtype is FP32 and rng.random() < 0.5:
                return applied(rng.choice(("tl.sqrt_rn({})", "tl.floor({})", "tl.ceil({})")),
                               (x,), dtype)  # fmt: skip
            return applied(rng.choice(("(-{})", "tl.abs({})")), (x,), dtype)
        if rng.random() < 0.1:
            parts = (*self._pair(dtype, depth), self.of(dtype, depth - 2))
            return applied("tl.fma({}, {}, {})", parts, dtype)
        forms = ["({} + {})", "({} - {})", "({} * {})"]
        if dtype is FP32:
            forms.append("tl.div_rn({}, {})")
        if dtype in (FP32, FP64):
            forms += ["tl.minimum({}, {})", "tl.maximum({}, {})"]
        return applied(rng.choice(forms), self._pair(dtype, depth), dtype)


Wrap = Callable[[str, Expression], str]


def written(x: Expression, wrap: Wrap) -> str:
    """The text of an expression; `wrap` may write a part in another way."""
    if not x.operands:
        return wrap(x.text, x)
    return wrap(x.text.format(*(written(o, wrap) for o in x.operands)), x)
