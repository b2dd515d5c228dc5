"""Formulas: elementwise functions written in Python, which emit ops when a kernel calls them.

    @function("xx->x", over="fd")
    def fdim(x: Number, y: Number) -> Number:
        return where(x <= y, x * 0.0, x - y)

is a primitive of the language that takes two fp32 or two fp64 operands and returns one. Its body is
executed once for each call that is compiled, and each operator emits one op. So a function has one
implementation for the interpreter and all targets, whose results are equal bit for bit wherever
those of the ops are, and it is differentiable if the ops are.

The semantics of operators is stricter than in the language, because every rounding matters:

- operands of an operator have the same type; a Python number becomes a constant of that type;
- a product is always rounded: it is not contracted with a sum unless written as `fma`;
- ``/`` and `sqrt` are correctly rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import (
    FP32,
    FP64,
    I1,
    I32,
    I64,
    U32,
    U64,
    DType,
    Scalar,
    dtype_of,
    element_of,
    shape_of,
    with_element,
)
from tilewright.language.elementary.by_ops import BY_OPS
from tilewright.language.semantic import arith as semantic
from tilewright.language.semantic import convert, reduce
from tilewright.language.semantic.context import Semantic
from tilewright.language.values import builtin, tensor, unwrap
from tilewright.ops import arith, marks, math
from tilewright.ops.control import For, Yield
from tilewright.ops.shape import Splat

LETTERS = {"f": FP32, "d": FP64, "i": I32, "u": U32, "l": I64, "m": U64, "b": I1}
Operand = Any  # a Number, or a Python number


class Number:
    """A value of the IR in a formula; see the module docstring.

    Attributes:
        semantic: the context in which ops are emitted.
        value: the SSA value.
    """

    __slots__ = ("semantic", "value")

    def __init__(self, semantic: Semantic, value: Value) -> None:
        self.semantic = semantic
        self.value = value

    @property
    def element(self) -> DType:
        return dtype_of(self.value.type)

    @property
    def wide(self) -> bool:
        """Whether the type is fp64."""
        return self.element is FP64

    def emit(self, op: Op) -> Number:
        return Number(self.semantic, self.semantic.builder.insert(op).results[0])

    def known(self) -> float | None:
        """The number that all elements are, if the program has it as a constant."""
        value = self.value
        while isinstance(value.op, Splat | marks.StopGradient):
            value = value.op.src
        return arith.constant_value(value)

    def constant(self, number: float, element: Scalar | None = None) -> Number:
        """A constant of the shape of this value, and of its element type unless `element` is
        given."""
        type_ = self.value.type if element is None else with_element(self.value.type, element)
        exact = convert.exact_value(number, element_of(type_))
        return self.emit(arith.Constant(exact, type_))

    def like(self, other: Operand) -> Number:
        """`other`, or a constant of this value's type if it is a Python number."""
        return other if isinstance(other, Number) else self.constant(other)

    def _binary(self, op: Any, other: Operand, swapped: bool = False) -> Number:
        a, b = self, self.like(other)
        if swapped:
            a, b = b, a
        return self.emit(op(a.value, b.value))

    def __add__(self, other: Operand) -> Number:
        return self._binary(arith.Add, other)

    def __radd__(self, other: Operand) -> Number:
        return self._binary(arith.Add, other, True)

    def __sub__(self, other: Operand) -> Number:
        return self._binary(arith.Sub, other)

    def __rsub__(self, other: Operand) -> Number:
        return self._binary(arith.Sub, other, True)

    def __mul__(self, other: Operand) -> Number:
        if self.element.is_floating():
            return fma(self, other, -0.0)  # unlike a product, it is not contracted with a sum
        return self._binary(arith.Mul, other)

    def __rmul__(self, other: Operand) -> Number:
        return self * other

    def __truediv__(self, other: Operand) -> Number:
        return self.emit(arith.Div(self.value, self.like(other).value, True))

    def __rtruediv__(self, other: Operand) -> Number:
        return self.emit(arith.Div(self.like(other).value, self.value, True))

    def __mod__(self, other: Operand) -> Number:
        """fmod: exact, with the sign of the dividend."""
        return self._binary(arith.Rem, other)

    def __floordiv__(self, other: Operand) -> Number:
        """Integer quotient, truncated toward zero."""
        return self._binary(arith.IntDiv, other)

    def __and__(self, other: Operand) -> Number:
        return self._binary(arith.And, other)

    def __or__(self, other: Operand) -> Number:
        return self._binary(arith.Or, other)

    def __xor__(self, other: Operand) -> Number:
        return self._binary(arith.Xor, other)

    def __lshift__(self, other: Operand) -> Number:
        return self._binary(arith.Shl, other)

    def __rshift__(self, other: Operand) -> Number:
        """Right shift: arithmetic for signed types, logical for unsigned ones."""
        return self._binary(arith.Shr, other)

    def __neg__(self) -> Number:
        return self.emit(arith.Neg(self.value))

    def __abs__(self) -> Number:
        return self if self.element.is_int_unsigned() else self.emit(arith.Abs(self.value))

    def __invert__(self) -> Number:
        return self ^ (True if self.element.is_bool() else -1)

    def _compare(self, other: Operand, predicate: str) -> Number:
        return self.emit(arith.Cmp(self.value, self.like(other).value, predicate))

    def __lt__(self, other: Operand) -> Number:
        return self._compare(other, "lt")

    def __le__(self, other: Operand) -> Number:
        return self._compare(other, "le")

    def __gt__(self, other: Operand) -> Number:
        return self._compare(other, "gt")

    def __ge__(self, other: Operand) -> Number:
        return self._compare(other, "ge")

    def __eq__(self, other: Operand) -> Number:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare(other, "eq")

    def __ne__(self, other: Operand) -> Number:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compare(other, "ne")

    __hash__ = object.__hash__

    def to(self, element: DType) -> Number:
        """Convert to another element type, as `tl.cast` does."""
        if element is self.element:
            return self
        return self.emit(arith.Cast(self.value, element, "rtne"))

    def bits(self, element: DType | None = None) -> Number:
        """Reinterpret the bits as another type of the same width, by default the signed integer."""
        if element is None:
            element = I64 if self.element.primitive_bitwidth == 64 else I32
        if element is self.element:
            return self
        return self.emit(arith.Bitcast(self.value, element))


# -- functions for formulas ------------------------------------------------------------------------


def fma(x: Number, y: Operand, z: Operand) -> Number:
    """x * y + z, rounded once."""
    return x.emit(arith.Fma(x.value, x.like(y).value, x.like(z).value))


def where(condition: Number, x: Operand, y: Operand) -> Number:
    """`x` where the condition is true, else `y`; at least one of them must be a `Number`."""
    if isinstance(x, Number):
        y = x.like(y)
    else:
        x = y.like(x)
    return condition.emit(arith.Select(condition.value, x.value, y.value))


def select(*cases: Any) -> Number:
    """``select(c0, x0, c1, x1, …, x)``: the value of the first true condition, else the last value.

    At least one of the values must be a `Number`.
    """
    values = [*cases[1::2], cases[-1]]
    model = next(v for v in values if isinstance(v, Number))
    result = model.like(cases[-1])
    for i in range(len(cases) - 3, -1, -2):
        result = where(cases[i], cases[i + 1], result)
    return result


def minimum(x: Number, y: Operand) -> Number:
    """Minimum; of a number and a NaN, the number."""
    return x.emit(arith.Min(x.value, x.like(y).value, False))


def maximum(x: Number, y: Operand) -> Number:
    """Maximum; of a number and a NaN, the number."""
    return x.emit(arith.Max(x.value, x.like(y).value, False))


def apply(op: type[math.MathFunction], x: Number, **attributes: Any) -> Number:
    """Apply a function that is an op."""
    return x.emit(op(x.value, **attributes))


def sqrt(x: Number) -> Number:
    """The correctly rounded square root."""
    return apply(math.Sqrt, x, ieee=True)


def quotient(x: Number, y: Number) -> Number:
    """x / y, within 2 ulp."""
    return x.emit(arith.Div(x.value, y.value, False))


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """The sum of c[i] * x**i, by Horner's rule."""
    result = x.constant(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result


def copysign(magnitude: Number, sign: Number) -> Number:
    """`magnitude` with the sign bit of `sign`."""
    top = -(1 << (magnitude.element.primitive_bitwidth - 1))
    return (abs(magnitude).bits() | (sign.bits() & top)).bits(magnitude.element)


# -- loops -----------------------------------------------------------------------------------------


def largest(x: Number) -> Number:
    """The largest element, a scalar."""
    value = tensor(x.value)
    found = reduce.extremum(x.semantic, value, None, False, semantic.maximum)
    return Number(x.semantic, found.handle) if shape_of(value.type) else x


def spread(scalar: Number, model: Number) -> Number:
    """A scalar in the shape of `model`."""
    shape = shape_of(model.value.type)
    s = scalar.semantic
    return Number(s, convert.extend_to(s, tensor(scalar.value), shape).handle)


def repeat(
    count: Number, carried: Sequence[Number], body: Callable[..., Sequence[Number]]
) -> list[Number]:
    """A loop: ``carried = body(i, *carried)`` for i from 0 to `count` - 1. Returns the final
    values.

    Args:
        count: the trip count, an int32 scalar, as i is.
        carried: the initial loop-carried values.
        body: returns the next loop-carried values, of the same types.
    """
    s = count.semantic
    region = Region([count.value.type, *[c.value.type for c in carried]])
    with s.builder.at_end(region):
        after = body(*[Number(s, a) for a in region.args])
        s.builder.insert(Yield([a.value for a in after]))
    start, step = count.constant(0), count.constant(1)
    inits = [c.value for c in carried]
    loop = For(start.value, count.value, step.value, inits, 0, 0, (), region)
    return [Number(s, r) for r in s.builder.insert(loop).results]


# -- primitives of the language --------------------------------------------------------------------

Formula = Callable[..., Number]


def _signatures(texts: Sequence[str], over: str) -> dict[tuple[DType, ...], DType]:
    """The table of operand types -> result type for signatures such as "xi->x"; x stands for each
    letter of `over`."""
    found: dict[tuple[DType, ...], DType] = {}
    for text in texts:
        for letter in over if "x" in text else "-":
            operands, result = text.replace("x", letter).split("->")
            found[tuple(LETTERS[o] for o in operands)] = LETTERS[result]
    return found


def _operands(
    s: Semantic, args: Sequence[Any], table: dict[tuple[DType, ...], DType]
) -> Sequence[tensor]:
    """The arguments converted to the types of a signature: the one of their own types, otherwise
    the one to which they all promote."""
    elements = [convert.element_type(a) for a in args]
    actual = tuple(e for e, _ in elements)
    row: Any = actual if actual in table else _promoted(elements, table)
    if row is None:
        expected = ", ".join(f"({', '.join(str(t) for t in row)})" for row in table)
        raise ValueError(
            f"input arg type does not match.Expect one of {expected}, got "
            f"({', '.join(str(e) for e in actual)}); cast the arguments first, with `.to`"
        )
    cast = [
        convert.cast(s, a, t) if isinstance(a, tensor) else convert.constant(s, unwrap(a), t)
        for a, t in zip(args, row, strict=True)
    ]
    return convert.broadcast_all(s, cast) if len(cast) > 1 else cast


def _promoted(elements: Sequence[tuple[Scalar, bool]], table: Any) -> tuple[DType, ...] | None:
    """The signature with equal types to which all operands promote; only Python numbers become
    fp32."""
    if not all(isinstance(e, DType) for e, _ in elements):
        return None
    common: Any
    common, weak = elements[0]
    for element, is_weak in elements[1:]:
        common = convert.computation_type(common, weak, element, is_weak)  # pyright: ignore[reportArgumentType]
        weak = weak and is_weak
    for candidate in (common, *([FP32] if weak else [])):
        if (candidate,) * len(elements) in table:
            return (candidate,) * len(elements)
    return None


def function(*signatures: str, over: str = "fd", name: str = "") -> Callable[[Formula], Any]:
    """Decorator that makes a formula a primitive of the language, elementwise on broadcast tiles.

    Args:
        signatures: such as ``"xi->x"``: one letter for each operand, and one for the result. f and
            d are fp32 and fp64; i, u, l and m are int32, uint32, int64 and uint64; x stands for
            each letter of `over`.
        name: the name of the primitive; by default that of the formula.

    The formula is the attribute ``formula`` of the primitive.

    Raises (when called in a kernel):
        TypeError: the number of arguments is wrong.
        ValueError: the arguments match no signature, even after promotion.
    """
    table = _signatures(signatures, over)
    count = len(next(iter(table)))

    def wrap(formula: Formula) -> Any:
        title = name or formula.__name__

        def primitive(*args: Any, _semantic: Any = None, **named: Any) -> tensor:
            args += _in_order(title, named, len(args))
            if len(args) != count:
                s = "s" if count > 1 else ""
                raise TypeError(f"{title} takes {count} argument{s}, not {len(args)}")
            operands = _operands(_semantic, args, table)
            numbers = [Number(_semantic, x.handle) for x in operands]
            if _semantic.options.derivatives and title not in BY_OPS:
                return tensor(marked(title, formula, numbers).value)
            return tensor(formula(*numbers).value)

        primitive.__name__ = primitive.__qualname__ = title
        primitive.__module__ = formula.__module__
        primitive.__doc__ = f"{formula.__doc__}\n\nSignatures: {', '.join(_texts(table))}."
        made: Any = builtin(primitive)
        made.formula = formula
        made.signatures = table
        return made

    return wrap


def marked(title: str, formula: Formula, operands: Sequence[Number]) -> Number:
    """The result of a function, marked as such, for a kernel that is differentiated: its derivative
    is that of the function of this title."""
    constants = [
        x.emit(marks.StopGradient(x.value)) if x.element.is_floating() else x for x in operands
    ]
    result = formula(*constants)
    if not result.element.is_floating():
        return result
    return result.emit(marks.FunctionResult(result.value, [x.value for x in operands], title))


def _in_order(title: str, named: dict[str, Any], first: int) -> tuple[Any, ...]:
    """Arguments by the names `arg0`, `arg1`, …, of which the first are given by position."""
    names = [f"arg{first + i}" for i in range(len(named))]
    for name in named.keys() - set(names):
        raise TypeError(f"{title} has no argument {name!r} beside {first} positional ones")
    return tuple(named[name] for name in names)


def _texts(table: dict[tuple[DType, ...], DType]) -> list[str]:
    return [f"({', '.join(str(t) for t in row)}) -> {to}" for row, to in table.items()]


def with_fp32(narrow: Formula) -> Callable[[Formula], Formula]:
    """Decorator that extends a formula for fp64 to fp32, for which it is `narrow`."""

    def extend(formula: Formula) -> Formula:
        def both(*operands: Number) -> Number:
            return (formula if operands[0].wide else narrow)(*operands)

        return _named_as(formula, both)

    return extend


def in_fp64(formula: Formula) -> Formula:
    """Decorator that extends a formula for fp64 to fp32: it is computed in fp64 and rounded to
    fp32.

    For functions that are rarely performance-critical: there is a single formula, and fp32 results
    are correctly rounded except for about one in 2**28.
    """

    def both(*operands: Number) -> Number:
        narrow = any(x.element is FP32 for x in operands)
        if not narrow:
            return formula(*operands)
        wide = [x.to(FP64) if x.element is FP32 else x for x in operands]
        return formula(*wide).to(FP32)

    return _named_as(formula, both)


def _named_as(formula: Formula, both: Formula) -> Formula:
    both.__name__ = formula.__name__
    both.__doc__ = formula.__doc__
    both.__module__ = formula.__module__
    return both
