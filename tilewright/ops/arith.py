"""Constants, integer and float arithmetic, comparison, selection, casts.

The operands of a binary op have the same type: the front end makes promotion and broadcasting
explicit. Every op is total, so that it can be speculated: integer arithmetic wraps, an integer
division by zero returns 0, a shift by the bit width or more shifts out all bits, and a conversion
from float to integer saturates.
"""

from __future__ import annotations

from math import copysign

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, require
from tilewright.ir.numbers import array_of, first_number
from tilewright.ir.traits import COMMUTATIVE, ELEMENTWISE
from tilewright.ir.types import (
    FP8E4B8,
    FP8E5B16,
    FP64,
    I1,
    U64,
    DType,
    Pointer,
    Scalar,
    Type,
    dtype_of,
    element_of,
    is_float,
    is_int,
    numpy_of,
    shape_of,
    text_of,
    with_element,
)
from tilewright.ops.numeric import (
    Array,
    arithmetic,
    extremum,
    float_to_float,
    float_to_int,
    fused_multiply_add,
    high_product,
    shift_count,
    truncating_divide,
    truncating_remainder,
    unwrapped,
)
from tilewright.ops.verifiers import verify_number, verify_same_type
from tilewright.ops.view import View


class Constant(Op, name="arith.constant", traits=ELEMENTWISE):
    """A constant. For a tile type, all elements are equal to it.

    `value` is a Python bool, int or float that the element type represents exactly.

        %0 = arith.constant value=1.5, type=4x8xfp32 : () -> 4x8xfp32
    """

    value: bool | int | float = attr()
    type: Type = attr()

    def result_type(self) -> Type:
        return self.type

    def verify(self) -> None:
        element = element_of(self.type)
        if isinstance(element, Pointer) or element.is_int():
            bounds = U64 if isinstance(element, Pointer) else element
            ok = isinstance(self.value, int) and (
                bounds.get_int_min_value() <= self.value <= bounds.get_int_max_value()
            )
        else:
            ok = isinstance(self.value, float) and self._is_exact(self.value)
        require(
            ok,
            self,
            "constant-range",
            "{value!r} is not a value of {type}",
            value=self.value,
            type=element,
        )

    def _is_exact(self, value: float) -> bool:
        with np.errstate(over="ignore"):
            rounded = first_number(array_of(value, self.type), self.type)
        return rounded == value or value != value

    def evaluate(self) -> Array:
        return np.full(shape_of(self.type), array_of(self.value, self.type))


class _Binary(Op):
    """Base class of ops with two operands and a result of the same type."""

    lhs: Value = operand()
    rhs: Value = operand()

    def result_type(self) -> Type:
        return self.lhs.type

    def verify(self) -> None:
        verify_same_type(self, self.lhs, self.rhs)
        self.verify_element(element_of(self.lhs.type))

    def verify_element(self, element: Scalar) -> None:
        verify_number(self, element)


class _IntBinary(_Binary):
    """Base class of binary ops on integers."""

    def verify_element(self, element: Scalar) -> None:
        require(element.is_int(), self, "element-type", "takes integers, not {t}", t=element)


class Add(_Binary, name="arith.add", traits=ELEMENTWISE | COMMUTATIVE):
    """Sum. Integers wrap; floats round to nearest even, and fp8 saturates.

    %2 = arith.add %0, %1 : (4xfp32, 4xfp32) -> 4xfp32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        function = np.add if lhs.dtype != np.bool_ else np.logical_xor
        return arithmetic(function, lhs, rhs, dtype_of(self.lhs.type))

    def exact(self, lhs: Array, rhs: Array) -> Array | None:
        return unwrapped(np.add, lhs, rhs, dtype_of(self.lhs.type))


class Sub(_Binary, name="arith.sub", traits=ELEMENTWISE):
    """Difference. Integers wrap; floats round to nearest even, and fp8 saturates.

    %2 = arith.sub %0, %1 : (i32, i32) -> i32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        function = np.subtract if lhs.dtype != np.bool_ else np.logical_xor
        return arithmetic(function, lhs, rhs, dtype_of(self.lhs.type))

    def exact(self, lhs: Array, rhs: Array) -> Array | None:
        return unwrapped(np.subtract, lhs, rhs, dtype_of(self.lhs.type))


class Mul(_Binary, name="arith.mul", traits=ELEMENTWISE | COMMUTATIVE):
    """Product. Integers wrap; floats round to nearest even, and fp8 saturates.

    %2 = arith.mul %0, %1 : (4xfp32, 4xfp32) -> 4xfp32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return arithmetic(np.multiply, lhs, rhs, dtype_of(self.lhs.type))

    def exact(self, lhs: Array, rhs: Array) -> Array | None:
        return unwrapped(np.multiply, lhs, rhs, dtype_of(self.lhs.type))


class Div(_Binary, name="arith.div", traits=ELEMENTWISE):
    """Float quotient. With `ieee`, and of fp64, it is correctly rounded on every target; otherwise
    the error on a target is at most 2 ulp.

    %2 = arith.div %0, %1, ieee=False : (4xfp32, 4xfp32) -> 4xfp32
    """

    ieee: bool = attr(False)

    @property
    def correctly_rounded(self) -> bool:
        return self.ieee or dtype_of(self.lhs.type) == FP64

    def verify_element(self, element: Scalar) -> None:
        require(element.is_floating(), self, "element-type", "takes floats, not {t}", t=element)

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return arithmetic(np.divide, lhs, rhs, dtype_of(self.lhs.type))


class IntDiv(_IntBinary, name="arith.idiv", traits=ELEMENTWISE):
    """Integer quotient, truncated toward zero. x / 0 is 0; the minimum value / -1 wraps.

    %2 = arith.idiv %0, %1 : (i32, i32) -> i32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.logical_and(lhs, rhs) if lhs.dtype == np.bool_ else truncating_divide(lhs, rhs)


class Rem(_Binary, name="arith.rem", traits=ELEMENTWISE):
    """Remainder with the sign of the dividend: C's % for integers, fmod for floats. x % 0 is 0 for
    integers, NaN for floats.

    %2 = arith.rem %0, %1 : (i32, i32) -> i32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        if lhs.dtype == np.bool_:
            return np.zeros_like(lhs)
        if is_float(self.lhs.type):
            return np.fmod(lhs.astype(np.float64), rhs.astype(np.float64)).astype(lhs.dtype)
        return truncating_remainder(lhs, rhs)


class And(_IntBinary, name="arith.and", traits=ELEMENTWISE | COMMUTATIVE):
    """Bitwise and; logical and for bools.

    %2 = arith.and %0, %1 : (4xi1, 4xi1) -> 4xi1
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.bitwise_and(lhs, rhs)


class Or(_IntBinary, name="arith.or", traits=ELEMENTWISE | COMMUTATIVE):
    """Bitwise or; logical or for bools.

    %2 = arith.or %0, %1 : (4xi1, 4xi1) -> 4xi1
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.bitwise_or(lhs, rhs)


class Xor(_IntBinary, name="arith.xor", traits=ELEMENTWISE | COMMUTATIVE):
    """Bitwise exclusive or; inequality for bools.

    %2 = arith.xor %0, %1 : (4xi32, 4xi32) -> 4xi32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.bitwise_xor(lhs, rhs)


class Shl(_IntBinary, name="arith.shl", traits=ELEMENTWISE):
    """Shift left. The count is unsigned; if it is the bit width or more, the result is 0.

    %2 = arith.shl %0, %1 : (i32, i32) -> i32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        if lhs.dtype == np.bool_:
            return lhs & ~rhs
        count, too_large = shift_count(rhs, lhs.dtype.itemsize * 8)
        return np.where(too_large, np.zeros_like(lhs), np.left_shift(lhs, count))


class Shr(_IntBinary, name="arith.shr", traits=ELEMENTWISE):
    """Shift right: arithmetic for signed types, logical for unsigned ones. The count is unsigned;
    if it is the bit width or more, all bits of the result are the sign bit (0 for unsigned types).

    %2 = arith.shr %0, %1 : (i32, i32) -> i32
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        if lhs.dtype == np.bool_:
            return lhs & ~rhs
        count, too_large = shift_count(rhs, lhs.dtype.itemsize * 8)
        out = (lhs < 0) * np.array(-1).astype(lhs.dtype) if lhs.dtype.kind == "i" else 0 * lhs
        return np.where(too_large, out, np.right_shift(lhs, count)).astype(lhs.dtype)


class Min(_Binary, name="arith.min", traits=ELEMENTWISE | COMMUTATIVE):
    """Minimum. Of a number and a NaN it is the number, or NaN with `propagate_nan`. -0.0 is less
    than 0.0.

    %2 = arith.min %0, %1, propagate_nan=False : (4xfp32, 4xfp32) -> 4xfp32
    """

    propagate_nan: bool = attr(False)

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        if lhs.dtype == np.bool_:
            return lhs & rhs
        return extremum(lhs, rhs, np.less, self.propagate_nan)


class Max(_Binary, name="arith.max", traits=ELEMENTWISE | COMMUTATIVE):
    """Maximum. Of a number and a NaN it is the number, or NaN with `propagate_nan`. 0.0 is greater
    than -0.0.

    %2 = arith.max %0, %1, propagate_nan=False : (4xfp32, 4xfp32) -> 4xfp32
    """

    propagate_nan: bool = attr(False)

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        if lhs.dtype == np.bool_:
            return lhs | rhs
        return extremum(lhs, rhs, np.greater, self.propagate_nan)


PREDICATES = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


class Cmp(Op, name="arith.cmp", traits=ELEMENTWISE):
    """Comparison: eq, ne, lt, le, gt or ge. If an operand is NaN, ne is true and the others are
    false.

    %2 = arith.cmp %0, %1, predicate="lt" : (4xi32, 4xi32) -> 4xi1
    """

    lhs: Value = operand()
    rhs: Value = operand()
    predicate: str = attr()

    def result_type(self) -> Type:
        return with_element(self.lhs.type, I1)

    def verify(self) -> None:
        verify_same_type(self, self.lhs, self.rhs)
        require(
            self.predicate in PREDICATES,
            self,
            "predicate",
            "there is no comparison {p!r}",
            p=self.predicate,
        )

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return PREDICATES[self.predicate](lhs, rhs)


class Select(Op, name="arith.select", traits=ELEMENTWISE):
    """`on_true` where `condition` is true, `on_false` elsewhere.

    %3 = arith.select %0, %1, %2 : (4xi1, 4xfp32, 4xfp32) -> 4xfp32
    """

    condition: Value = operand()
    on_true: Value = operand()
    on_false: Value = operand()

    def result_type(self) -> Type:
        return self.on_true.type

    def verify(self) -> None:
        a, b = self.on_true.type, self.on_false.type
        require(
            a == b,
            self,
            "operand-types",
            "branches are {a} and {b}; they must be of one type",
            a=a,
            b=b,
        )
        require(
            self.condition.type == with_element(a, I1),
            self,
            "condition",
            "the condition is {c}, it must be {expected}",
            c=self.condition.type,
            expected=with_element(a, I1),
        )

    def evaluate(self, condition: Array, on_true: Array, on_false: Array) -> Array:
        return np.where(condition, on_true, on_false)


class _Unary(Op):
    """Base class of ops with one operand, a number, and a result of its type."""

    src: Value = operand()

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        verify_number(self, element_of(self.src.type))


class Neg(_Unary, name="arith.neg", traits=ELEMENTWISE):
    """Negation: flips the sign bit of floats; integers wrap.

    %1 = arith.neg %0 : 4xfp32 -> 4xfp32
    """

    def evaluate(self, src: Array) -> Array:
        return src.copy() if src.dtype == np.bool_ else np.negative(src)


class Abs(_Unary, name="arith.abs", traits=ELEMENTWISE):
    """Absolute value: clears the sign bit of floats; the minimum integer wraps to itself.

    %1 = arith.abs %0 : 4xfp32 -> 4xfp32
    """

    def evaluate(self, src: Array) -> Array:
        if not is_float(self.src.type):
            return np.abs(src)
        bits = f"u{src.dtype.itemsize}"
        mask = np.array((1 << (src.dtype.itemsize * 8 - 1)) - 1, bits)
        cleared = (np.atleast_1d(src).view(bits) & mask).view(src.dtype).reshape(src.shape)
        if dtype_of(self.src.type) in (FP8E4B8, FP8E5B16):  # their only NaN has the sign bit
            return np.where(src != src, src, cleared)
        return cleared


class Fma(Op, name="arith.fma", traits=ELEMENTWISE):
    """x * y + z with one rounding.

    %3 = arith.fma %0, %1, %2 : (4xfp32, 4xfp32, 4xfp32) -> 4xfp32
    """

    x: Value = operand()
    y: Value = operand()
    z: Value = operand()

    def result_type(self) -> Type:
        return self.x.type

    def verify(self) -> None:
        require(
            self.x.type == self.y.type == self.z.type and is_float(self.x.type),
            self,
            "operand-types",
            "takes three floats of one type",
        )

    def evaluate(self, x: Array, y: Array, z: Array) -> Array:
        return fused_multiply_add(x, y, z, dtype_of(self.x.type))


class MulHi(_IntBinary, name="arith.mulhi", traits=ELEMENTWISE | COMMUTATIVE):
    """High half of the product of the operands, both taken as unsigned.

    %2 = arith.mulhi %0, %1 : (4xu32, 4xu32) -> 4xu32
    """

    def verify_element(self, element: Scalar) -> None:
        require(
            element.is_int() and element.primitive_bitwidth in (32, 64),
            self,
            "element-type",
            "takes integers of 32 or 64 bits, not {t}",
            t=element,
        )

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        bits = lhs.dtype.itemsize * 8
        a, b = lhs.view(f"u{bits // 8}"), rhs.view(f"u{bits // 8}")
        if bits == 32:
            high = ((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
            return high.view(lhs.dtype)
        return high_product(a, b).view(lhs.dtype)


class Cast(Op, name="arith.cast", traits=ELEMENTWISE):
    """Conversion to another numeric type.

    To a narrower float it rounds ("rtne" to nearest even, or "rtz" toward zero); from a float to an
    integer it truncates and saturates, and NaN becomes 0; to i1 it is ``x != 0``; between integers
    it truncates, or extends according to the signedness of the source. Conversions to fp8 saturate,
    also infinities. Conversion to fp8e4b15 first truncates to fp16, then rounds; NaN becomes the
    largest value. Integers are converted to floats of 16 bits or fewer through fp64.

        %1 = arith.cast %0, to=bf16, rounding="rtne" : 4xfp32 -> 4xbf16
    """

    src: Value = operand()
    to: DType = attr()
    rounding: str = attr("rtne")

    def result_type(self) -> Type:
        return with_element(self.src.type, self.to)

    def verify(self) -> None:
        source = element_of(self.src.type)
        verify_number(self, source)
        require(
            # the parser accepts any type here, regardless of the annotation
            isinstance(self.to, DType) and not self.to.is_void(),  # pyright: ignore[reportUnnecessaryIsInstance]
            self,
            "target-type",
            "does not give {t!r}",
            t=self.to,
        )
        require(
            self.rounding in ("rtne", "rtz"),
            self,
            "rounding",
            "there is no rounding {r!r}",
            r=self.rounding,
        )

    def evaluate(self, src: Array) -> Array:
        source, to = dtype_of(self.src.type), self.to
        if to.is_bool():
            return src != np.zeros((), src.dtype)
        if source.is_floating() and to.is_floating():
            return float_to_float(src, to, self.rounding)
        if source.is_floating():
            return float_to_int(src, to)
        if to.is_floating() and to.primitive_bitwidth < 32:
            return float_to_float(src.astype(np.float64), to, "rtne")
        return src.astype(to.numpy)


class Bitcast(Op, name="arith.bitcast", traits=ELEMENTWISE):
    """Reinterprets the bits as another type of the same width; pointers have 64 bits.

    %1 = arith.bitcast %0, to=i32 : 4xfp32 -> 4xi32
    """

    takes_bits = True

    src: Value = operand()
    to: Scalar = attr()

    def result_type(self) -> Type:
        return with_element(self.src.type, self.to)

    def verify(self) -> None:
        source = element_of(self.src.type)
        require(
            isinstance(self.to, DType | Pointer),  # pyright: ignore[reportUnnecessaryIsInstance]
            self,
            "target-type",
            "does not give {t!r}",
            t=self.to,
        )
        require(
            source.primitive_bitwidth == self.to.primitive_bitwidth,
            self,
            "width",
            "{a} and {b} have different widths",
            a=source,
            b=self.to,
        )

    def evaluate(self, src: Array) -> Array:
        return np.atleast_1d(src).view(numpy_of(self.to)).reshape(src.shape)


class Hint(View, name="arith.hint", traits=ELEMENTWISE):
    """Returns `src`, with properties of its values that the kernel's author guarantees, for each
    axis (0: none).

    `contiguity`: the length of runs of consecutive integers. `constancy`: the length of runs of
    equal values. `divisibility`: a divisor of the first element of each run. `low` and `high`: the
    bounds of an integer, both inclusive (None: those of its type).

        %1 = arith.hint %0, divisibility=(16,), contiguity=(0,), constancy=(0,), low=0, high=None
          : 64xi32 -> 64xi32
    """

    divisibility: tuple[int, ...] = attr()
    contiguity: tuple[int, ...] = attr()
    constancy: tuple[int, ...] = attr()
    low: int | None = attr(default=None)
    high: int | None = attr(default=None)

    def result_type(self) -> Type:
        return self.src.type

    def verify(self) -> None:
        rank = max(1, len(shape_of(self.src.type)))
        for facts in (self.divisibility, self.contiguity, self.constancy):
            n = len(facts)
            require(n == rank, self, "rank", "{n} values for {rank} axes", n=n, rank=rank)
        fits = is_int(self.src.type) or (self.low is None and self.high is None)
        t = text_of(self.src.type)
        require(fits, self, "element-type", "bounds an integer, not {t}", t=t)

    def evaluate(self, src: Array) -> Array:
        return src


def constant_value(value: Value) -> bool | int | float | None:
    """The value of a constant, or of all elements of a constant tile; None if it is not the result
    of a `Constant`."""
    op = value.op
    return op.value if isinstance(op, Constant) else None


def is_positive_zero(value: Value) -> bool:
    """Whether a value is the constant 0, or a tile of them, and not -0.0."""
    constant = constant_value(value)
    return constant == 0 and copysign(1, constant) > 0
