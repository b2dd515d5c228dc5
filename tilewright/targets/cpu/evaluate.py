"""Emits the element of any tile at a point, in the loop with whose index each part of it varies.

A point is a coordinate per axis, each a :class:`Lanes`. Shape ops change coordinates only; an
elementwise op evaluates its operands at the same point; a materialised value is read from its
buffer. Results are memoised by (value, coordinates) in the level where they are emitted, so a value
is emitted once for each distinct point at which it is used.

Each op has a *rule*: a generator that yields the operands it needs, each with its point, receives
their lanes, and returns the result. `evaluate` runs rules on an explicit stack, since a kernel may
be a chain of thousands of ops, beyond Python's recursion limit.

Invariant: a `Lanes` with depth d is emitted in the level of depth d, or further out, and therefore
dominates every use in that level and its children.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import I1, Builder, V, const, zero
from tilewright.lowering.math_common import if_any
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.types import memory_type, register_type
from tilewright.ops import arith, memory, shape
from tilewright.ops.view import View
from tilewright.targets.cpu import access, lanes
from tilewright.targets.cpu.coordinates import clamp, source_coords
from tilewright.targets.cpu.lanes import Lanes
from tilewright.targets.cpu.lazy import RULES
from tilewright.targets.cpu.level import Coords, Emitting, Level
from tilewright.targets.cpu.name import NAME
from tilewright.targets.cpu.offsets import LINEAR, offset_of
from tilewright.targets.cpu.rule import Need, Rule


def computes(*classes: type[Op]) -> Callable[[Callable[..., Rule]], Callable[..., Rule]]:
    """Register the rule of op classes that are neither elementwise nor a `View`, or that have a
    special case. It makes them lazy: their elements are computed in the loops of their consumers.
    """
    return RULES.of(*classes)


class _Task(NamedTuple):
    """A rule in progress, its level, and the memo for its result."""

    level: Level
    rule: Rule
    memo: dict[tuple[Value, Coords], Lanes]


def evaluate(level: Level, value: Value, coords: Coords) -> Lanes:
    """The value at a point, emitted in the level with which the coordinates vary."""
    found = _find(level, Need(value, coords))
    return found if isinstance(found, Lanes) else _run(found, (value, coords))


def scalar(level: Level, value: Value) -> V:
    """A rank-0 value."""
    return evaluate(level, value, ()).base


def load(level: Level, op: memory.Load, coords: Coords) -> Lanes:
    """`mem.load` at a point, emitted at each call rather than memoised: for volatile loads."""
    return _run(_Task(level, _load(level, op, op.result, coords), {}), (op.result, coords))


def _run(task: _Task, key: tuple[Value, Coords]) -> Lanes:
    """Run a rule, depth first, with the rules of the operands it requires."""
    stack = [(task, key)]
    answer: Lanes | None = None
    while True:
        (level, rule, memo), key = stack[-1]
        try:
            need = next(rule) if answer is None else rule.send(answer)
        except StopIteration as end:
            result: Lanes = end.value
            answer = memo[key] = result
            stack.pop()
            if not stack:
                return result
            continue
        found = _find(level, need)
        if isinstance(found, Lanes):
            answer = found
        else:
            stack.append((found, (need.value, need.coords)))
            answer = None


def _find(level: Level, need: Need) -> Lanes | _Task:
    """The memoised or bound value at a point, or else a task to compute it."""
    value, coords, offset = need
    if offset:
        home = level.home(coords)
        known = home.offsets.get((value, coords))
        return _Task(home, offset_of(home, value, coords), home.offsets) if known is None else known
    # Before the memo: an outer level may have memoised the mask for code without the assumption.
    truth = level.assumed.get(value) if level.assumed else None
    if truth is not None:
        return Lanes(const(register_type(value.type), int(truth)), 0)
    home = level.home(coords)
    key = value, coords
    look: Level | None = home
    while look is not None:  # what an outer level has emitted dominates this one
        known = look.memo.get(key)
        if known is not None:
            return known
        look = look.parent
    bound = home.kernel.env.get(value)
    if bound is None:
        return _Task(home, _compute(home, value, coords), home.memo)
    if isinstance(bound, V):
        known = Lanes(bound, 0)
    else:
        with Emitting(home):
            known = access.read_buffer(home, bound, coords)
    home.memo[key] = known
    return known


def _rule_of(op: Op) -> Callable[..., Rule]:
    result = RULES.get(type(op))
    if result is not None:
        return result
    if isinstance(op, View):
        return _moved
    assert op.elementwise, f"{op.name} is not evaluated element by element"
    return _elementwise


def _compute(level: Level, value: Value, coords: Coords) -> Rule:
    op = value.op
    assert op is not None, f"{value} has no value here"
    rule = _rule_of(op)
    with Emitting(level):
        if level.kernel.lines is None:
            return (yield from rule(level, op, value, coords))
        with level.kernel.line_of(op):
            return (yield from rule(level, op, value, coords))


def _operands(op: Op, coords: Coords) -> Generator[Need, Lanes, list[Lanes]]:
    """All operands at the same point."""
    result: list[Lanes] = []
    for v in op.operands:
        result.append((yield Need(v, coords)))
    return result


def _elementwise(level: Level, op: Op, value: Value, coords: Coords) -> Rule:
    args: list[Lanes] = []
    for v in op.operands:
        args.append((yield Need(v, coords)))
    return _lowered(level, op, args)


def _lowered(level: Level, op: Op, args: list[Lanes]) -> Lanes:
    """Lower an op on lanes; as a scalar op if all operands are uniform."""
    lower = lowering_of(type(op), NAME)
    assert lower is not None, f"no lowering of {op.name}"
    depth = max([a.depth for a in args], default=0)
    with level.placed(*args):
        if level.width == 1 or all([a.stride == 0 for a in args]):
            return Lanes(lower(level.b, op, *[a.base for a in args]), 0, depth)
        vectors = [level.vector(a) for a in args]
        return Lanes(lower(level.b, op, *vectors), None, depth)


# -- rules of ops that are not elementwise, or have a special case ---------------------------------


@computes(shape.Arange)
def _arange(level: Level, op: shape.Arange, value: Value, coords: Coords) -> Rule:
    yield from ()
    (c,) = coords
    start = const(register_type(ir.I32), op.start)
    with level.placed(c):
        narrow = level.b.trunc(c.base, start.type)
        if narrow.type.lanes:
            start = lanes.spread(level.b, start, level.width)
        return Lanes(level.b.add(narrow, start), c.stride, c.depth)


def _moved(level: Level, op: View, value: Value, coords: Coords) -> Rule:
    return (yield Need(op.src, source_coords(level, op, value.index, coords)))


@computes(arith.Constant)
def _constant(level: Level, op: arith.Constant, value: Value, coords: Coords) -> Rule:
    yield from ()
    return Lanes(level.kernel.constant(op), 0)


@computes(arith.Add, arith.Sub, arith.Mul)
def _linear_arith(level: Level, op: Op, value: Value, coords: Coords) -> Rule:
    """Sums, differences and products of integers stay linear in the lanes (modulo 2^n). Sums of
    floats are contracted by a pass, alike wherever they are computed (`passes/contract_sums.py`).
    """
    args = yield from _operands(op, coords)
    if ir.is_int(value.type) and not ir.element_of(value.type).is_bool():
        with level.placed(*args):
            return LINEAR[type(op)](level.b, args[0], args[1], level.width)
    if isinstance(op, arith.Mul):  # which reductions contract
        return _lowered(level, op, args)
    with level.b.flags(""):
        return _lowered(level, op, args)


@computes(arith.And, arith.Or)
def _logic(level: Level, op: Op, value: Value, coords: Coords) -> Rule:
    """And, or: with a constant operand that determines the result, the other is not emitted."""
    x = yield Need(op.operands[0], coords)
    decided = 0 if isinstance(op, arith.And) else 1
    if x.uniform and x.base.number is not None and x.base.type.bits == 1:
        return x if x.base.number == decided else (yield Need(op.operands[1], coords))
    y = yield Need(op.operands[1], coords)
    if y.uniform and y.base.number is not None and y.base.type.bits == 1:
        return y if y.base.number == decided else x
    return _lowered(level, op, [x, y])


@computes(arith.Select)
def _select(level: Level, op: arith.Select, value: Value, coords: Coords) -> Rule:
    """If the condition is constant, only the selected operand is emitted."""
    condition = yield Need(op.condition, coords)
    if condition.uniform and condition.base.number is not None:
        return (yield Need(op.on_true if condition.base.number else op.on_false, coords))
    on_true = yield Need(op.on_true, coords)
    on_false = yield Need(op.on_false, coords)
    sides = [on_true, on_false]
    if condition.uniform and not all(s.uniform for s in sides) and level.width > 1:
        depth = max(condition.depth, *[s.depth for s in sides])
        with level.placed(condition, *sides):
            vectors = [level.vector(s) for s in sides]
            return Lanes(level.b.select(condition.base, *vectors), None, depth)
    return _lowered(level, op, [condition, *sides])


@computes(arith.Div)
def _divide(level: Level, op: arith.Div, value: Value, coords: Coords) -> Rule:
    """Division of a vector by a uniform value: a hoisted reciprocal, and two products.

    A vector division takes several times as long. The error is below 2 ulp, which `Div` permits.
    """
    x, y = yield from _operands(op, coords)
    if op.correctly_rounded or x.uniform or not y.uniform:
        return _lowered(level, op, [x, y])
    home = level.at_depth(min(y.depth, level.depth))
    element = ir.dtype_of(op.rhs.type)
    known = home.reciprocals.get(y)
    if known is None:
        with Emitting(home):
            known = _reciprocal(home.b, widen(home.b, y.base, element))
        home.reciprocals[y] = known
    b = level.b
    with level.placed(x, y):
        reciprocal, scale = (lanes.spread(b, v, level.width) for v in known)
        wide = widen(b, level.vector(x), element)
        quotient = b.fmul(b.fmul(wide, scale), reciprocal)
        return Lanes(narrow(b, quotient, element), None, max(x.depth, y.depth))


def _reciprocal(b: Builder, y: V) -> tuple[V, V]:
    """r and s in fp32 with x / y = (x * s) * r, where r neither overflows nor is subnormal.

    Divisors of extreme magnitude are scaled by a power of two; zero, infinity and NaN need no
    special case.
    """
    power = 2.0**64
    magnitude = b.intrinsic("llvm.fabs", y.type, [y], overloads=[y.type])
    one = const(y.type, 1.0)
    tiny = b.fcmp("olt", magnitude, const(y.type, 1.0 / power))
    huge = b.fcmp("ogt", magnitude, const(y.type, power))

    def scaled() -> list[V]:
        scale = b.select(tiny, const(y.type, power), const(y.type, 1.0 / power))
        return [b.fdiv(one, b.fmul(y, scale)), scale]

    reciprocal, scale = if_any(b, b.or_(tiny, huge), [b.fdiv(one, y), one], scaled)
    return reciprocal, scale


@computes(memory.AddPtr)
def _addptr(level: Level, op: memory.AddPtr, value: Value, coords: Coords) -> Rule:
    b = level.b
    ptr = yield Need(op.ptr, coords)
    offset = yield Need(op.offset, coords, offset=True)
    element = memory_type(memory.pointee_of(op.ptr.type))
    depth = max(ptr.depth, offset.depth)
    with level.placed(ptr, offset):
        if ptr.stride is not None and offset.stride is not None:
            stride = ptr.stride + offset.stride * (element.bits // 8)
            return Lanes(b.gep(element, ptr.base, offset.base), stride, depth)
        base = ptr.base if ptr.uniform else level.vector(ptr)
        return Lanes(b.gep(element, base, level.vector(offset)), None, depth)


@computes(arith.Bitcast)
def _pointer_bits(level: Level, op: arith.Bitcast, value: Value, coords: Coords) -> Rule:
    if isinstance(ir.element_of(op.src.type), ir.Pointer):
        if isinstance(ir.element_of(op.result.type), ir.Pointer):
            return (yield Need(op.src, coords))  # LLVM's pointers are opaque
        return (yield from _address(level, op, coords))
    return _lowered(level, op, [(yield Need(op.src, coords))])


def _address(level: Level, op: arith.Bitcast, coords: Coords) -> Rule:
    """A pointer as an integer, to which offsets are added as integers.

    LLVM's instcombine fails (22.1: an assertion, or a value of the wrong type) on a comparison or a
    difference of two vectors of pointers that are offsets of one scalar, which may therefore not be
    what is converted.
    """
    pointer, offsets = op.src, list[memory.AddPtr]()
    while isinstance(pointer.op, memory.AddPtr):
        offsets.append(pointer.op)
        pointer = pointer.op.ptr
    src = yield Need(pointer, coords)
    if src.stride is None:
        result = _lowered(level, op, [src])
    else:
        with level.placed(src):
            result = Lanes(level.b.ptrtoint(src.base), src.stride, src.depth)
    for add in reversed(offsets):
        offset = yield Need(add.offset, coords, offset=True)
        size = memory_type(memory.pointee_of(add.ptr.type)).bits // 8
        with level.placed(result, offset):
            scaled = lanes.mul(level.b, offset, lanes.index(size), level.width)
            result = lanes.add(level.b, result, scaled, level.width)
    return result


@computes(arith.Hint)
def _hint(level: Level, op: arith.Hint, value: Value, coords: Coords) -> Rule:
    """The value itself, which preserves its linear form."""
    return (yield Need(op.src, coords))


@computes(memory.Load)
def _load(level: Level, op: memory.Load, value: Value, coords: Coords) -> Rule:
    mask = (yield Need(op.mask, coords)) if op.mask is not None else None
    if mask is not None and mask.base.number is not None and mask.base.type is I1:
        if not mask.base.number:
            return (yield from _other(op, coords))
        mask = None
    other = (yield from _other(op, coords)) if mask is not None else None
    ptr = yield Need(op.ptr, coords)
    run = access.contiguous_lanes(level, op.ptr, ptr, coords)
    ends: list[tuple[V, V]] = []
    for first, last in access.ends_of_runs(level, run, coords):
        ends.append(((yield Need(op.ptr, first)).base, (yield Need(op.ptr, last)).base))
    return access.load(level, op, coords, ptr, mask, other, run._replace(ends=ends))


def _other(op: memory.Load, coords: Coords) -> Rule:
    if op.other is not None:
        return (yield Need(op.other, coords))
    return Lanes(zero(register_type(memory.pointee_of(op.ptr.type))), 0)


@computes(shape.Join)
def _join(level: Level, op: shape.Join, value: Value, coords: Coords) -> Rule:
    *outer, last = coords
    if last.uniform and last.base.number is not None:
        return (yield Need(op.rhs if last.base.number else op.lhs, tuple(outer)))
    lower = yield Need(op.lhs, tuple(outer))
    upper = yield Need(op.rhs, tuple(outer))
    return _choose(level, last, 1, upper, lower)


def _choose(level: Level, c: Lanes, bound: int, upper: Lanes, lower: Lanes) -> Lanes:
    """`upper` where the coordinate is at least `bound`, else `lower`."""
    b = level.b
    depth = max(c.depth, upper.depth, lower.depth)
    with level.placed(c, upper, lower):
        place = c.base if c.uniform else level.vector(c)
        test = b.icmp("sge", place, const(place.type, bound))
        if upper.uniform and lower.uniform and c.uniform:
            return Lanes(b.select(test, upper.base, lower.base), 0, depth)
        return Lanes(b.select(test, level.vector(upper), level.vector(lower)), None, depth)


@computes(shape.Cat)
def _cat(level: Level, op: shape.Cat, value: Value, coords: Coords) -> Rule:
    axis, c = op.axis, coords[op.axis]
    sizes = [ir.shape_of(v.type)[axis] for v in (op.lhs, op.rhs)]
    before, after = coords[:axis], coords[axis + 1 :]
    first = yield Need(op.lhs, (*before, clamp(level, c, sizes[0] - 1), *after))
    home = level.home((c,))
    key = shape.Cat, sizes[0], c
    if key not in home.moved:
        with Emitting(home):
            home.moved[key] = (lanes.sub(level.b, c, lanes.index(sizes[0]), level.width),)
    (moved,) = home.moved[key]
    second = yield Need(op.rhs, (*before, clamp(level, moved, sizes[1] - 1), *after))
    return _choose(level, c, sizes[0], second, first)


@computes(shape.Gather)
def _gather(level: Level, op: shape.Gather, value: Value, coords: Coords) -> Rule:
    signed = ir.dtype_of(op.index.type).is_int_signed()
    index = yield Need(op.index, coords)
    home = level.home((index,))
    key = arith.Cast, signed, index
    known = home.moved.get(key)
    if known is None:
        known = home.moved[key] = (level.extend(index, signed),)
    clamped = clamp(level, known[0], ir.shape_of(op.src.type)[op.axis] - 1)
    return (yield Need(op.src, (*coords[: op.axis], clamped, *coords[op.axis + 1 :])))
