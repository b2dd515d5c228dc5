"""Computes any tile at a point, in the loop where each part of it varies.

A point is a coordinate per axis, each a :class:`Lanes`. Shape ops only change coordinates; an
elementwise op evaluates its operands at the same point; a kept value is read from its buffer.

Each loop has a :class:`Level`. A value that varies with the loops up to some depth is emitted in
the body of the loop at that depth, not in the innermost one: so what does not vary is computed
once, however the source was written. Results are remembered by (value, coordinates).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import types as ir
from tilewright.ir.core import Op, Value
from tilewright.lowering.convert import narrow, widen
from tilewright.lowering.emit import I64, Block, Builder, V, const
from tilewright.lowering.math_common import if_any
from tilewright.lowering.registry import lowering_of
from tilewright.lowering.types import memory_type, register_type
from tilewright.ops import arith, memory, shape
from tilewright.targets.cpu import access, lanes
from tilewright.targets.cpu.lanes import ZERO, Lanes, as_vector

if TYPE_CHECKING:
    from tilewright.targets.cpu.kernel import Kernel

Coords = tuple[Lanes, ...]


class Level:
    """A loop body, or the straight code around the loops (depth 0).

    Attributes:
        block: where values that vary with this loop are emitted; it stays open until the loop
            nest below it is complete.
        width: number of lanes.
        span: number of neighbouring coordinates for which uniform and linear values are that:
            the lanes, or more where one vector stands for a whole axis.
        assumed: truth of masks within this body, by value.
        streamed: pointers of aligned vectors that are stored past the caches within this body.
    """

    def __init__(
        self,
        kernel: Kernel,
        block: Block,
        parent: Level | None = None,
        width: int = 1,
        assumed: dict[Value, bool] | None = None,
    ) -> None:
        self.kernel = kernel
        self.b: Builder = kernel.b
        self.block = block
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.width = width
        self.span = width
        self.assumed: dict[Value, bool] = dict(parent.assumed) if parent else {}
        if assumed:
            self.assumed.update(assumed)
        self.streamed: frozenset[Value] = parent.streamed if parent else frozenset()
        self.memo: dict[tuple[Value, Coords], Lanes] = {}
        self.reciprocals: dict[Lanes, tuple[V, V]] = {}
        self.offsets: dict[tuple[Value, Coords], Lanes] = {}

    def child(
        self, block: Block, width: int | None = None, assumed: dict[Value, bool] | None = None
    ) -> Level:
        return Level(self.kernel, block, self, self.width if width is None else width, assumed)

    def at_depth(self, depth: int) -> Level:
        level = self
        while level.depth > depth:
            assert level.parent is not None
            level = level.parent
        return level

    # -- evaluation -----------------------------------------------------------------------------

    def eval(self, value: Value, coords: Coords) -> Lanes:
        """The value at a point. Emitted at the level that the coordinates vary with."""
        truth = self.assumed.get(value)
        if truth is not None:
            return Lanes(const(register_type(value.type), int(truth)), 0)
        depth = max([c.depth for c in coords], default=0)
        level = self if depth >= self.depth else self.at_depth(depth)
        key = (value, coords)
        found: Lanes | None = None
        look: Level | None = level
        while look is not None and found is None:
            found = look.memo.get(key)
            look = look.parent
        if found is None:
            with _Emitting(level):
                found = level.compute(value, coords)
            level.memo[key] = found
        return found

    def compute(self, value: Value, coords: Coords) -> Lanes:
        bound = self.kernel.env.get(value)
        if isinstance(bound, V):
            return Lanes(bound, 0)
        if bound is not None:
            return access.read_buffer(self, bound, coords)
        op = value.op
        assert op is not None, f"{value} has no value here"
        if self.kernel.lines is None:
            return self._compute(op, value, coords)
        with self.kernel.line_of(op):
            return self._compute(op, value, coords)

    def _compute(self, op: Op, value: Value, coords: Coords) -> Lanes:
        special = _SPECIAL.get(type(op))
        if special is not None:
            return special(self, op, value, coords)
        assert op.elementwise, f"{op.name} is not evaluated element by element"
        return self.elementwise(op, [self.eval(v, coords) for v in op.operands])

    def elementwise(self, op: Op, args: list[Lanes]) -> Lanes:
        """Lower an op on lanes: as a scalar when all lanes agree."""
        lower = lowering_of(type(op), "cpu")
        assert lower is not None, f"no lowering of {op.name}"
        depth = max([a.depth for a in args], default=0)
        with self.placed(*args):
            if all(a.uniform for a in args) or self.width == 1:
                return Lanes(lower(self.b, op, *[a.base for a in args]), 0, depth)
            vectors = [self.vector(a) for a in args]
            return Lanes(lower(self.b, op, *vectors), None, depth)

    def placed(self, *args: Lanes) -> _Emitting:
        """Emit where what these values vary with is known, no deeper.

        A result must not claim to be known further out than it is emitted: it may become a
        coordinate, and then decides where others are emitted.
        """
        return _Emitting(self.at_depth(min(self.depth, max([a.depth for a in args], default=0))))

    def vector(self, x: Lanes) -> V:
        """All lanes as a vector."""
        if x.base.type.is_ptr and x.stride not in (0, None):
            return access.pointer_vector(self, x)
        return as_vector(self.b, x, self.width)

    def scalar(self, value: Value) -> V:
        """A rank-0 value."""
        return self.eval(value, ()).base

    def offset(self, value: Value, coords: Coords) -> Lanes:
        """An integer tile used in an address, in 64 bits.

        Signed arithmetic that feeds an address is done in 64 bits throughout: an offset that
        wraps in 32 bits within one tile names no element of a tensor, so nothing is lost, and
        lanes stay linear. Where a value is not such arithmetic it is computed as it is and then
        extended.
        """
        depth = max([c.depth for c in coords], default=0)
        level = self if depth >= self.depth else self.at_depth(depth)
        key = (value, coords)
        found = level.offsets.get(key)
        if found is None:
            with _Emitting(level):
                found = level.compute_offset(value, coords)
            level.offsets[key] = found
        return found

    def compute_offset(self, value: Value, coords: Coords) -> Lanes:
        signed = ir.dtype_of(value.type).is_int_signed()
        op = value.op
        if op is not None and signed and value not in self.kernel.env:
            rule = _OFFSETS.get(type(op))
            found = None
            if rule is not None:
                with self.kernel.line_of(op):
                    found = rule(self, op, coords)
            if found is not None:
                return found
        return self.extend(self.eval(value, coords), signed)

    def extend(self, x: Lanes, signed: bool) -> Lanes:
        if x.base.type.bits == 64:
            return x
        with self.placed(x):
            narrow = x.base if x.uniform else self.vector(x)
            wide = self.b.sext(narrow, I64) if signed else self.b.zext(narrow, I64)
            return Lanes(wide, 0 if x.uniform else None, x.depth)


class _Emitting:
    """Emit in a level's block for a while."""

    __slots__ = ("elsewhere", "level", "saved")

    def __init__(self, level: Level) -> None:
        self.level = level

    def __enter__(self) -> None:
        b = self.level.b
        self.saved = b.current
        self.elsewhere = self.saved is not self.level.block
        if self.elsewhere:
            b.at(self.level.block)

    def __exit__(self, *_: object) -> None:
        # the evaluation may have opened blocks of its own: the level goes on where it ended
        b = self.level.b
        self.level.block = b.current
        if self.elsewhere:
            b.at(self.saved)


# -- ops that are more than their operands at the same point ---------------------------------------


def _arange(level: Level, op: shape.Arange, value: Value, coords: Coords) -> Lanes:
    (c,) = coords
    start = const(register_type(ir.I32), op.start)
    with level.placed(c):
        narrow = level.b.trunc(c.base, start.type)
        if narrow.type.lanes:
            start = lanes.spread(level.b, start, level.width)
        return Lanes(level.b.add(narrow, start), c.stride, c.depth)


def _expand(level: Level, op: shape.ExpandDims, coords: Coords) -> Coords:
    return coords[: op.axis] + coords[op.axis + 1 :]


def _broadcast(level: Level, op: shape.Broadcast, coords: Coords) -> Coords:
    sizes = ir.shape_of(op.src.type)
    return tuple(
        ZERO if n == 1 and m != 1 else c for c, n, m in zip(coords, sizes, op.shape, strict=True)
    )


def _permute(level: Level, op: shape.Permute, coords: Coords) -> Coords:
    source: list[Lanes] = [ZERO] * len(coords)
    for i, axis in enumerate(op.order):
        source[axis] = coords[i]
    return tuple(source)


def _splat(level: Level, op: shape.Splat, coords: Coords) -> Coords:
    return ()


def _flip(level: Level, op: shape.Flip, coords: Coords) -> Coords:
    size = ir.shape_of(op.src.type)[op.axis]
    with level.placed(coords[op.axis]):
        flipped = lanes.sub(level.b, lanes.index(size - 1), coords[op.axis], level.width)
    return (*coords[: op.axis], flipped, *coords[op.axis + 1 :])


def _reshape(level: Level, op: shape.Reshape, coords: Coords) -> Coords:
    key = (op.result, coords)
    known = level.kernel.reshaped.get(key)
    if known is None:
        source, target = ir.shape_of(op.src.type), ir.shape_of(op.result.type)
        with level.placed(*coords):
            known = level.kernel.reshaped[key] = _reindex(level, source, target, coords)
    return known


def _reindex(
    level: Level, source: tuple[int, ...], target: tuple[int, ...], coords: Coords
) -> Coords:
    """Coordinates in `source` of a point in `target`, by way of the row-major position.

    Axes of length 1 are dropped first, so the common case needs no division.
    """
    kept = [(n, c) for n, c in zip(target, coords, strict=True) if n != 1]
    sizes = [n for n in source if n != 1]
    if [n for n, _ in kept] == sizes:
        remaining = iter(c for _, c in kept)
        return tuple(ZERO if n == 1 else next(remaining) for n in source)
    position = ZERO
    for n, c in zip(target, coords, strict=True):
        scaled = lanes.mul(level.b, position, lanes.index(n), level.width)
        position = lanes.add(level.b, scaled, c, level.width)
    found: list[Lanes] = []
    for n in reversed(source):
        position, rest = lanes.divmod_const(level.b, position, n, level.width, level.span)
        found.append(rest)
    return tuple(reversed(found))


_MOVED: dict[type[Any], Callable[..., Coords]] = {
    shape.ExpandDims: _expand,
    shape.Broadcast: _broadcast,
    shape.Permute: _permute,
    shape.Splat: _splat,
    shape.Flip: _flip,
    shape.Reshape: _reshape,
}


def _offset_moved(level: Level, op: Op, coords: Coords) -> Lanes:
    return level.offset(op.operands[0], _MOVED[type(op)](level, op, coords))


def _offset_arith(level: Level, op: Op, coords: Coords) -> Lanes:
    x, y = (level.offset(v, coords) for v in op.operands)
    combine = {arith.Add: lanes.add, arith.Sub: lanes.sub, arith.Mul: lanes.mul}[type(op)]  # pyright: ignore
    with level.placed(x, y):
        return combine(level.b, x, y, level.width)


def _offset_arange(level: Level, op: shape.Arange, coords: Coords) -> Lanes:
    with level.placed(coords[0]):
        return lanes.add(level.b, coords[0], lanes.index(op.start), level.width)


def _offset_cast(level: Level, op: arith.Cast, coords: Coords) -> Lanes | None:
    source = ir.dtype_of(op.src.type)
    exact = source.is_int_signed() and source.primitive_bitwidth <= op.to.primitive_bitwidth
    return level.offset(op.src, coords) if exact else None


_OFFSETS: dict[type[Any], Callable[..., Lanes | None]] = {
    arith.Add: _offset_arith,
    arith.Sub: _offset_arith,
    arith.Mul: _offset_arith,
    arith.Hint: lambda level, op, coords: level.offset(op.src, coords),
    arith.Cast: _offset_cast,
    shape.Arange: _offset_arange,
    **dict.fromkeys(_MOVED, _offset_moved),
}


def _moved(level: Level, op: Op, value: Value, coords: Coords) -> Lanes:
    return level.eval(op.operands[0], _MOVED[type(op)](level, op, coords))


def _constant(level: Level, op: arith.Constant, value: Value, coords: Coords) -> Lanes:
    return Lanes(level.kernel.constant(op), 0)


def _linear_arith(level: Level, op: Op, value: Value, coords: Coords) -> Lanes:
    """Sums, differences and products of integers keep the linear form, exactly (both wrap)."""
    args = [level.eval(v, coords) for v in op.operands]
    if ir.is_int(value.type) and not ir.element_of(value.type).is_bool():
        combine = {arith.Add: lanes.add, arith.Sub: lanes.sub, arith.Mul: lanes.mul}[type(op)]  # pyright: ignore
        with level.placed(*args):
            return combine(level.b, args[0], args[1], level.width)
    return level.elementwise(op, args)


def _logic(level: Level, op: Op, value: Value, coords: Coords) -> Lanes:
    """And, or: a constant side decides without the other being emitted."""
    x = level.eval(op.operands[0], coords)
    decided = 0 if isinstance(op, arith.And) else 1
    if x.uniform and x.base.number is not None and x.base.type.bits == 1:
        return x if x.base.number == decided else level.eval(op.operands[1], coords)
    y = level.eval(op.operands[1], coords)
    if y.uniform and y.base.number is not None and y.base.type.bits == 1:
        return y if y.base.number == decided else x
    return level.elementwise(op, [x, y])


def _select(level: Level, op: arith.Select, value: Value, coords: Coords) -> Lanes:
    """Only the side taken is emitted when the condition is known."""
    condition = level.eval(op.condition, coords)
    if condition.uniform and condition.base.number is not None:
        return level.eval(op.on_true if condition.base.number else op.on_false, coords)
    sides = [level.eval(op.on_true, coords), level.eval(op.on_false, coords)]
    if condition.uniform and not all(s.uniform for s in sides) and level.width > 1:
        depth = max(condition.depth, *[s.depth for s in sides])
        with level.placed(condition, *sides):
            vectors = [level.vector(s) for s in sides]
            return Lanes(level.b.select(condition.base, *vectors), None, depth)
    return level.elementwise(op, [condition, *sides])


def _divide(level: Level, op: arith.Div, value: Value, coords: Coords) -> Lanes:
    """Division of many by one: a reciprocal where that one is made, then two products.

    A vector division takes several times as long. The result is within 2 ulp, which `Div` allows.
    """
    x, y = level.eval(op.lhs, coords), level.eval(op.rhs, coords)
    if op.ieee or x.uniform or not y.uniform:
        return level.elementwise(op, [x, y])
    home = level.at_depth(min(y.depth, level.depth))
    element = ir.dtype_of(op.rhs.type)
    known = home.reciprocals.get(y)
    if known is None:
        with _Emitting(home):
            known = _reciprocal(home.b, widen(home.b, y.base, element))
        home.reciprocals[y] = known
    b = level.b
    with level.placed(x, y):
        reciprocal, scale = (lanes.spread(b, v, level.width) for v in known)
        wide = widen(b, level.vector(x), element)
        quotient = b.fmul(b.fmul(wide, scale), reciprocal)
        return Lanes(narrow(b, quotient, element), None, max(x.depth, y.depth))


def _reciprocal(b: Builder, y: V) -> tuple[V, V]:
    """r and s with x / y = (x * s) * r, where r neither overflows nor becomes subnormal.

    A divisor of extreme size is scaled by a power of two; zero, infinity and NaN come out right.
    """
    power = 2.0**512 if y.type.bits == 64 else 2.0**64
    magnitude = b.intrinsic("llvm.fabs", y.type, [y], overloads=[y.type])
    one = const(y.type, 1.0)
    tiny = b.fcmp("olt", magnitude, const(y.type, 1.0 / power))
    huge = b.fcmp("ogt", magnitude, const(y.type, power))

    def scaled() -> list[V]:
        scale = b.select(tiny, const(y.type, power), const(y.type, 1.0 / power))
        return [b.fdiv(one, b.fmul(y, scale)), scale]

    reciprocal, scale = if_any(b, b.or_(tiny, huge), [b.fdiv(one, y), one], scaled)
    return reciprocal, scale


def _addptr(level: Level, op: memory.AddPtr, value: Value, coords: Coords) -> Lanes:
    b = level.b
    ptr = level.eval(op.ptr, coords)
    offset = level.offset(op.offset, coords)
    element = memory_type(memory.pointee_of(op.ptr.type))
    depth = max(ptr.depth, offset.depth)
    with level.placed(ptr, offset):
        if ptr.stride is not None and offset.stride is not None:
            stride = ptr.stride + offset.stride * (element.bits // 8)
            return Lanes(b.gep(element, ptr.base, offset.base), stride, depth)
        base = ptr.base if ptr.uniform else level.vector(ptr)
        return Lanes(b.gep(element, base, level.vector(offset)), None, depth)


def _pointer_bits(level: Level, op: arith.Bitcast, value: Value, coords: Coords) -> Lanes:
    src = level.eval(op.src, coords)
    if src.base.type.is_ptr and isinstance(ir.element_of(op.result.type), ir.Pointer):
        return src  # LLVM's pointers have no pointee
    if src.base.type.is_ptr and src.stride not in (0, None):
        src = Lanes(access.pointer_vector(level, src), None, src.depth)
    return level.elementwise(op, [src])


def _hint(level: Level, op: arith.Hint, value: Value, coords: Coords) -> Lanes:
    """The value itself: consecutive addresses stay a base and a stride."""
    return level.eval(op.src, coords)


def _load(level: Level, op: memory.Load, value: Value, coords: Coords) -> Lanes:
    return access.load(level, op, coords)


def _join(level: Level, op: shape.Join, value: Value, coords: Coords) -> Lanes:
    *outer, last = coords
    if last.uniform and last.base.number is not None:
        return level.eval(op.rhs if last.base.number else op.lhs, tuple(outer))
    sides = [level.eval(op.lhs, tuple(outer)), level.eval(op.rhs, tuple(outer))]
    return _choose(level, last, 1, sides[1], sides[0])


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


def _split(level: Level, op: shape.Split, value: Value, coords: Coords) -> Lanes:
    return level.eval(op.src, (*coords, lanes.index(value.index)))


def _clamp(level: Level, c: Lanes, last: int) -> Lanes:
    b = level.b
    with level.placed(c):
        v = c.base if c.uniform else level.vector(c)
        low = b.intrinsic("llvm.smax", v.type, [v, const(v.type, 0)], overloads=[v.type])
        high = b.intrinsic("llvm.smin", v.type, [low, const(v.type, last)], overloads=[v.type])
        return Lanes(high, 0 if c.uniform else None, c.depth)


def _cat(level: Level, op: shape.Cat, value: Value, coords: Coords) -> Lanes:
    axis, c = op.axis, coords[op.axis]
    sizes = [ir.shape_of(v.type)[axis] for v in (op.lhs, op.rhs)]
    before, after = coords[:axis], coords[axis + 1 :]
    first = level.eval(op.lhs, (*before, _clamp(level, c, sizes[0] - 1), *after))
    with level.placed(c):
        moved = lanes.sub(level.b, c, lanes.index(sizes[0]), level.width)
    second = level.eval(op.rhs, (*before, _clamp(level, moved, sizes[1] - 1), *after))
    return _choose(level, c, sizes[0], second, first)


def _gather(level: Level, op: shape.Gather, value: Value, coords: Coords) -> Lanes:
    at = level.extend(level.eval(op.index, coords), ir.dtype_of(op.index.type).is_int_signed())
    clamped = _clamp(level, at, ir.shape_of(op.src.type)[op.axis] - 1)
    return level.eval(op.src, (*coords[: op.axis], clamped, *coords[op.axis + 1 :]))


_SPECIAL: dict[type[Any], Callable[..., Lanes]] = {
    arith.Constant: _constant,
    arith.Add: _linear_arith,
    arith.Sub: _linear_arith,
    arith.Mul: _linear_arith,
    arith.Div: _divide,
    arith.And: _logic,
    arith.Or: _logic,
    arith.Select: _select,
    arith.Bitcast: _pointer_bits,
    arith.Hint: _hint,
    memory.AddPtr: _addptr,
    memory.Load: _load,
    shape.Arange: _arange,
    shape.Join: _join,
    shape.Split: _split,
    shape.Cat: _cat,
    shape.Gather: _gather,
    **dict.fromkeys(_MOVED, _moved),
}
