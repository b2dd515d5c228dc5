"""Random expressions of integers, as indices are computed from, and what analyses claim of them.

    found = expressions(seed)  # a function, and the values that its ops have in one run
    for fault in faults(found, trust_divisors=True): ...

Other random programs seldom compute what an analysis has facts about: these consist of sums of
ranges and repeated scalars, quotients and remainders of them, masks and casts. Numbers are negative
as often as not, and narrow and unsigned integers wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tilewright.analysis.axis_info import axis_info
from tilewright.analysis.axis_rules import AxisInfo
from tilewright.analysis.ranges import may_wrap, value_range
from tilewright.analysis.signs import is_repeated_scalar, not_negative
from tilewright.ir import interpret as interpreter
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import (
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    Tile,
    dtype_of,
    element_of,
    is_int,
    shape_of,
)
from tilewright.ir.verify import verify_module
from tilewright.ops import arith, shape
from tilewright.ops.control import Condition, For, If, Return, While, Yield

TYPES = (I32, I32, I32, I32, I32, I32, I64, I64, I8, I16, U8, U16, U32, U64)
DIVISIBILITIES = (16, 16, 8, 32, 1)
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 8, 12, 15, 16, 16, 16, 24, 31, 32, 32, 48, 63, 64, 100, 128)
SHAPES = ((64,), (64,), (64,), (16,), (24,), (8, 16), (16, 8), (1, 64), (4, 4, 8))
Array = Any


@dataclass
class Found:
    """A function and the values of its integers in one run, in the order of their computation.

    Attributes:
        wrapped: values that depend on a sum of wide integers that wraps.
        divided: values that depend on a division by a scalar that is not positive.
    """

    fn: Function
    values: dict[Value, list[Array]] = field(default_factory=dict[Value, list[Array]])
    wrapped: set[Value] = field(default_factory=set[Value])
    divided: set[Value] = field(default_factory=set[Value])


class _Expressions:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.build = Builder()
        self.pool: list[Value] = []
        self.depth = 0

    def below(self, n: int) -> int:
        return int(self.rng.integers(0, n))

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def new(self, op: Op) -> Value:
        self.build.insert(op)
        self.pool += [r for r in op.results if is_int(r.type)]
        return op.results[0]

    def function(self, size: int) -> Function:
        types = [I32, I32, I64, I32, self.choose(TYPES)]
        fn = Function("f", types)
        for attrs in fn.arg_attrs:
            attrs["divisibility"] = self.choose(DIVISIBILITIES)
        self.pool = list(fn.args)
        with self.build.at_end(fn.body):
            self.ops(size)
            shown = list(dict.fromkeys(v for v in self.pool if v.op is not None))
            fn.result_types = [v.type for v in shown]
            self.build.insert(Return(shown))
        return fn

    def arguments(self, fn: Function) -> list[Array]:
        """Small numbers of either sign that keep the promised divisibility."""
        found: list[Array] = []
        for arg, attrs in zip(fn.args, fn.arg_attrs, strict=True):
            element = dtype_of(arg.type)
            number = attrs["divisibility"] * int(self.rng.integers(-5, 9))
            low, high = element.get_int_min_value(), element.get_int_max_value()
            if not low <= number <= high:
                number = 0
            found.append(np.asarray(number).astype(_numpy(element)))
        return found

    # -- values ---------------------------------------------------------------------------------

    def pick(self, fits: Callable[[Value], bool]) -> Value | None:
        options = [v for v in self.pool if fits(v)]
        return options[max(self.below(len(options)), self.below(len(options)))] if options else None

    def any(self) -> Value:
        """A tile mostly, and mostly one with runs."""
        found = self.pick(lambda v: isinstance(v.type, Tile) or self.below(6) == 0)
        return found if found is not None and self.below(5) else self.run()

    def run(self) -> Value:
        """A range, with a repeated scalar added or taken away: what offsets begin with."""
        extents = self.choose(SHAPES)
        count = int(np.prod(extents))
        start = self.choose((0, 0, 0, 8, 16, 5, 64))
        found: Value = self.new(shape.Arange(start, start + count))
        if len(extents) > 1:
            found = self.new(shape.Reshape(found, extents))
        to = self.choose(TYPES)
        if to is not I32:
            found = self.new(arith.Cast(found, to, "rtne"))
        if self.below(4):
            other = self.repeated(found)
            op = self.choose((arith.Add, arith.Add, arith.Sub))
            found = self.new(op(*((found, other) if self.below(4) else (other, found))))
        return found

    def number(self, type: Any, *, small: bool = False) -> Value:
        element = dtype_of(type)
        number = self.choose(NUMBERS) * self.choose((1, 1, 1, -1))
        if not small and self.below(24) == 0:
            number = self.choose((element.get_int_min_value(), element.get_int_max_value()))
        low, high = element.get_int_min_value(), element.get_int_max_value()
        return self.new(arith.Constant(number if low <= number <= high else 16 & high, type))

    def repeated(self, like: Value) -> Value:
        """A constant, or copies of a scalar, of the type of a value."""
        if self.below(2):
            return self.number(like.type)
        element = element_of(like.type)
        scalar = self.pick(lambda v: not isinstance(v.type, Tile))
        assert scalar is not None
        if scalar.type != element:
            scalar = self.new(arith.Cast(scalar, dtype_of(element), "rtne"))
        if self.below(3) == 0:
            scalar = self.new(arith.Mul(scalar, self.number(scalar.type)))
        extents = shape_of(like.type)
        return self.new(shape.Splat(scalar, extents)) if extents else scalar

    def like(self, value: Value) -> Value:
        found = self.pick(lambda v: v.type == value.type)
        return found if found is not None and self.below(2) else self.repeated(value)

    # -- ops ------------------------------------------------------------------------------------

    def ops(self, size: int) -> None:
        makers = [*[self.divide] * 5, *[self.binary] * 4, self.bits, self.mask, self.select]
        makers += [self.cast, self.view, self.view, self.extremum, self.run]
        if self.depth == 0:
            makers += [self.loop, self.branch, self.while_loop]
        for _ in range(size):
            self.choose(makers)()

    def divide(self) -> None:
        x = self.any()
        self.new(self.choose((arith.IntDiv, arith.Rem))(x, self.like(x)))

    def binary(self) -> None:
        x = self.any()
        op = self.choose((arith.Add, arith.Add, arith.Sub, arith.Mul))
        pair = (x, self.like(x))
        self.new(op(*(pair if self.below(3) else pair[::-1])))

    def bits(self) -> None:
        x = self.any()
        op = self.choose((arith.And, arith.And, arith.Or, arith.Xor, arith.Shl, arith.Shr))
        if op in (arith.Shl, arith.Shr):
            count = self.choose((0, 1, 2, 3, 4, 4, 5, 7, 8, 31, 33, 63, 65))
            most = dtype_of(x.type).get_int_max_value()
            self.new(op(x, self.new(arith.Constant(min(count, most), x.type))))
        else:
            self.new(op(x, self.like(x)))

    def mask(self) -> None:
        x = self.any()
        self.new(arith.Cmp(x, self.like(x), self.choose(list(arith.PREDICATES))))

    def select(self) -> None:
        x = self.any()
        condition = self.build.value(arith.Cmp(x, self.like(x), self.choose(("lt", "ge", "eq"))))
        self.new(arith.Select(condition, self.like(x), self.like(x)))

    def extremum(self) -> None:
        x = self.any()
        self.new(self.choose((arith.Min, arith.Max))(x, self.like(x), propagate_nan=False))

    def cast(self) -> None:
        self.new(arith.Cast(self.any(), self.choose(TYPES), "rtne"))

    def view(self) -> None:
        x = self.any()
        extents = shape_of(x.type)
        if not extents:
            return
        match self.below(7):
            case 0:
                self.new(shape.ExpandDims(x, self.below(len(extents) + 1)))
            case 1:
                self.new(shape.Broadcast(x, tuple(self.choose((4, 16)) if n == 1 else n
                                                  for n in extents)))  # fmt: skip
            case 2:
                count = int(np.prod(extents))
                options = [s for s in SHAPES if int(np.prod(s)) == count] or [extents]
                self.new(shape.Reshape(x, self.choose(options)))
            case 3:
                order = self.rng.permutation(len(extents))
                self.new(shape.Permute(x, tuple(int(i) for i in order)))
            case 4:
                self.new(shape.Flip(x, self.below(len(extents))))
            case 5:
                self.new(shape.Join(x, self.like(x)))
            case _ if extents[-1] % 2 == 0:
                halves = self.new(shape.Reshape(x, (*extents[:-1], extents[-1] // 2, 2)))
                self.new(shape.Split(halves))
            case _:
                pass

    # -- control --------------------------------------------------------------------------------

    def region(self, types: Sequence[Any], fill: Callable[[list[Value]], Op]) -> Region:
        region = Region(types)
        saved, self.pool = self.pool, [*self.pool, *region.args]
        self.depth += 1
        with self.build.at_end(region):
            self.build.insert(fill(region.args))
        self.depth -= 1
        self.pool = saved
        return region

    def next_of(self, arg: Value, step: Value) -> Value:
        """What a loop computes from what it carries."""
        by = self.build.value(shape.Splat(step, shape_of(arg.type))) if shape_of(arg.type) else step
        op = self.choose((arith.Add, arith.Add, arith.Sub, arith.Max))
        more = {"propagate_nan": False} if op is arith.Max else {}
        found = self.build.value(op(arg, by, **more))
        if self.below(3) == 0:
            found = self.build.value(arith.Rem(found, self.number(found.type, small=True)))
        return found

    def carried(self) -> list[Value]:
        found = [self.pick(lambda v: element_of(v.type) == I32) for _ in range(1 + self.below(2))]
        return [v for v in found if v is not None]

    def loop(self) -> None:
        start, trips = (self.number(I32, small=True) for _ in range(2))
        few = self.new(arith.Rem(trips, self.new(arith.Constant(5, I32))))
        length = self.new(arith.Mul(few, self.number(I32, small=True)))
        if self.below(2):  # one of several parts
            start = self.new(arith.Mul(self.new(arith.Constant(self.below(4), I32)), length))
        stop = self.new(arith.Add(start, length))
        if self.below(2):
            stop = self.new(arith.Min(stop, self.number(I32, small=True), False))
        step = self.new(
            arith.Max(self.number(I32, small=True), self.new(arith.Constant(7, I32)), False)
        )
        inits = self.carried()

        def fill(args: list[Value]) -> Op:
            by = args[0] if self.below(2) else self.number(I32, small=True)
            return Yield([self.next_of(a, by) for a in args[1:]])

        body = self.region([I32, *(v.type for v in inits)], fill)
        op = For(start, stop, step, inits, 0, 0, (), body)
        self.build.insert(op)
        self.pool += op.results

    def branch(self) -> None:
        types = [v.type for v in self.carried()]

        def fill(_: list[Value]) -> Op:
            found = [self.pick(lambda v, t=t: v.type == t) for t in types]
            return Yield([v for v in found if v is not None])

        x = self.number(I32, small=True)
        condition = self.build.value(arith.Cmp(x, self.like(x), "lt"))
        op = If(condition, self.region([], fill), self.region([], fill))
        self.build.insert(op)
        self.pool += op.results

    def while_loop(self) -> None:
        inits = [self.new(arith.Constant(self.below(4), I32)), *self.carried()]
        types = [v.type for v in inits]

        def before(args: list[Value]) -> Op:
            zero = self.build.value(arith.Constant(0, I32))
            return Condition(self.build.value(arith.Cmp(args[0], zero, "gt")), args)

        def body(args: list[Value]) -> Op:
            one = self.build.value(arith.Constant(1, I32))
            less = self.build.value(arith.Sub(args[0], one))
            return Yield([less, *(self.next_of(a, self.number(I32, small=True)) for a in args[1:])])

        op = While(inits, self.region(types, before), self.region(types, body))
        self.build.insert(op)
        self.pool += op.results


def _numpy(element: DType) -> Any:
    return np.dtype(f"{'i' if element.is_int_signed() else 'u'}{element.primitive_bitwidth // 8}")


# -- one run --------------------------------------------------------------------------------------

_EXACT: dict[type[Op], Callable[..., Any]] = {
    arith.Add: lambda a, b: a + b,
    arith.Sub: lambda a, b: a - b,
    arith.Mul: lambda a, b: a * b,
    arith.Shl: np.vectorize(lambda a, c: a << min(max(c, 0), 64), otypes=[object]),
    arith.Cast: lambda a: a,
}


class _Recording(interpreter.State):
    """Notes all values of integers, and the values that assumptions do not hold for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.found: Found

    def run(self, region: Region, args: Sequence[Any]) -> list[Any]:
        self._note(region.args, args)
        return super().run(region, args)

    def _step(self, op: Op, slots: dict[Any, int]) -> Any:
        step = super()._step(op, slots)

        def noted(*given: Any) -> Any:
            got = step.call(*given)
            results = got if isinstance(got, tuple) else (got,)
            self._note(op.results, results)
            operands = given[1:] if step.takes_state else given
            if not op.regions and op.results and is_int(op.results[0].type):
                self._check(op, [np.asarray(v).astype(object) for v in operands], results[0])
            return got

        return step._replace(call=noted)

    def _note(self, values: Sequence[Value], arrays: Sequence[Any]) -> None:
        for value, array in zip(values, arrays, strict=True):
            if is_int(value.type):
                self.found.values.setdefault(value, []).append(np.asarray(array).astype(object))

    def _check(self, op: Op, operands: list[Array], result: Any) -> None:
        exact = _EXACT.get(type(op))
        # Sums of other integers are assumed not to wrap.
        wide = not may_wrap(op.results[0])
        if wide and exact and np.any(exact(*operands) != np.asarray(result).astype(object)):
            self.found.wrapped.update(op.results)
        divides = isinstance(op, arith.IntDiv | arith.Rem) and is_repeated_scalar(op.rhs)
        if divides and np.any(operands[1] <= 0):
            self.found.divided.update(op.results)


def expressions(seed: int, size: int = 24) -> Found:
    """A random function, run once."""
    made = _Expressions(seed)
    fn = made.function(size)
    verify_module(Module([fn]))
    found = Found(fn)

    class Launched(_Recording):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.found = found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "State", Launched)
        interpreter.evaluate_function(fn, made.arguments(fn))
    for unsound in (found.wrapped, found.divided):
        _add_dependent(fn, unsound)
    return found


def _add_dependent(fn: Function, values: set[Value]) -> None:
    """Add what is computed from values; results of control flow depend on all that is in it."""
    before = -1
    while before != len(values):
        before = len(values)
        for op in fn.walk():
            used = [v for inner in op.walk() for v in (*inner.operands, *inner.results)]
            if not values.isdisjoint(used if op.regions else op.operands):
                values.update(op.results)
                values.update(arg for region in op.regions for arg in region.args)


# -- claims ---------------------------------------------------------------------------------------


def faults(found: Found, *, trust_divisors: bool) -> Iterator[str]:
    """The claims of the analyses that the values do not meet."""
    infos = axis_info(found.fn, trust_divisors=trust_divisors)
    for value, arrays in found.values.items():
        if value in found.wrapped or (trust_divisors and value in found.divided):
            continue
        low, high = value_range(value)
        if not_negative(value, trust_divisors=trust_divisors):
            low = max(low, 0)
        for array in map(np.atleast_1d, arrays):
            if np.any(array < low) or np.any(array > high):
                yield f"{value} is {array}, not within {low} and {high}"
            for axis in range(infos[value].rank):
                fault = fault_along(array, infos[value], axis)
                if fault:
                    yield f"{fault} along {axis} of {value}: {infos[value]} of {array}"


def fault_along(exact: Array, info: AxisInfo, axis: int, modulus: int = 1 << 64) -> str:
    """What is not as claimed along one axis; "" if all is. Runs may wrap at the modulus."""
    runs = _in_runs(exact, axis, info.contiguity[axis])
    if np.any((runs - runs[..., :1] - np.arange(runs.shape[-1])) % modulus):
        return "contiguity"
    if np.any(runs[..., 0] % info.divisibility[axis] != 0):
        return "divisibility"
    equal = _in_runs(exact, axis, info.constancy[axis])
    if np.any(equal != equal[..., :1]):
        return "constancy"
    if info.constant is not None and np.any(exact != info.constant):
        return "constant"
    return ""


def _in_runs(array: Array, axis: int, length: int) -> Array:
    """The array as (…, run, place in the run)."""
    moved = np.moveaxis(array, axis, -1)
    return moved.reshape(*moved.shape[:-1], -1, length)
