"""Decomposition of pointer arithmetic into a base and offsets, and its reconstruction.

Part of canonicalize_pointers; see there for the form and the rules for splitting sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from tilewright.analysis.ranges import sum_fits, type_range
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import I32, I64, Tile, element_of, is_pointer, shape_of, with_element
from tilewright.ops.arith import Add, Cast, Constant, Hint, Select
from tilewright.ops.memory import AddPtr
from tilewright.ops.shape import Splat
from tilewright.ops.view import View
from tilewright.passes.scalar_terms import ScalarTerms
from tilewright.rewrites.patterns import known, like

# Ops whose result may contain a uniform term. Only such sums of narrow integers are split, because
# the proof that they do not wrap is expensive.
_SPLITTABLE = (Constant, Add, Cast, View)

MOST_TERMS = 256
"""Of an offset. A sum of sums that share operands has up to 2^n terms for n additions."""

_Terms: TypeAlias = tuple[tuple[Value, ...], tuple[Value, ...]]  # uniform, varying


class Parts(NamedTuple):
    """A pointer as the sum of a base and offsets, each extended to 64 bits.

    Attributes:
        base: a scalar pointer, or a tile of pointers of unknown origin.
        uniform: scalar offsets.
        varying: tiles of offsets.
        divisibility: the guaranteed divisibility of the addresses, as in `Hint`. It holds for this
            sum, not for one with further offsets.
    """

    base: Value
    uniform: tuple[Value, ...] = ()
    varying: tuple[Value, ...] = ()
    divisibility: tuple[int, ...] = ()


def is_pointer_arithmetic(op: Op) -> bool:
    moves = isinstance(op, AddPtr | Select) or (isinstance(op, View) and op.moves_all)
    return moves and is_pointer(op.result.type)


class PointerAlgebra:
    """Decomposes pointers, and builds them from their parts with the builder `build`.

    The decomposition of each pointer is cached.
    """

    def __init__(self, fn: Function) -> None:
        self.inserted = False
        self.build = Builder()
        self._scalars = ScalarTerms(fn, self.new)
        self._parts: dict[Value, Parts] = {}

    def forget(self) -> None:
        """Invalidate the cache, after uses of a pointer were replaced."""
        self._parts.clear()

    def new(self, op: Op) -> Value:
        """Insert the op and return its only result."""
        self.inserted = True
        return self.build.value(op)

    # -- decomposition --------------------------------------------------------------------------

    def parts(self, pointer: Value) -> Parts:
        result = self._parts.get(pointer)
        if result is None:
            result = self._parts[pointer] = self._find_parts(pointer)
        return result

    def _find_parts(self, pointer: Value) -> Parts:
        op = pointer.op
        match op:
            case AddPtr(ptr, offset):
                base, uniform, varying, _ = self.parts(ptr)
                with self.build.before(op):
                    more = self._split_offset(offset, {})
                return Parts(base, uniform + more[0], varying + more[1])
            case Splat(src):
                return self.parts(src)._replace(divisibility=())
            case Select(condition, on_true, on_false):
                return self._parts_of_select(
                    op, condition, self.parts(on_true), self.parts(on_false)
                )
            case Hint(src):
                tile = isinstance(pointer.type, Tile)
                return self._parts_of_hint(op, self.parts(src)) if tile else Parts(pointer)
            case View(src) if op.moves_all:
                return self._parts_of_reshaped(op, self.parts(src))
            case _:
                return Parts(pointer)

    def _parts_of_reshaped(self, op: Op, parts: Parts) -> Parts:
        """Apply a view op to the varying offsets, and to the base if that is a tile."""
        base, uniform, varying, _ = parts
        base_is_tile = isinstance(base.type, Tile)
        if base_is_tile and not uniform and not varying:
            return Parts(op.result)
        with self.build.before(op):
            if not shape_of(op.result.type) and varying:  # a reshape to a scalar
                scalars = [self.new(like(op, [term])) for term in varying]
                return Parts(base, (*uniform, *scalars))
            if base_is_tile:
                base = self.new(like(op, [base]))
            moved = [self.new(like(op, [term])) for term in varying]
        return Parts(base, uniform, tuple(moved))

    def _parts_of_select(self, op: Select, condition: Value, a: Parts, b: Parts) -> Parts:
        if a.base is not b.base:
            return Parts(op.result)
        type = with_element(op.result.type, I64)
        with self.build.before(op):
            if not isinstance(type, Tile):
                offsets = [self.sum_uniform(p.uniform) or self.number(0) for p in (a, b)]
                return Parts(a.base, (self.new(Select(condition, *offsets)),))
            if a.uniform == b.uniform:
                shared = a.uniform
                whole = [self.sum_varying(p.varying, wide=True) for p in (a, b)]
            else:
                shared = ()
                whole = [self.whole_offset(p, type) for p in (a, b)]
            zero = [w or self.new(Constant(0, type)) for w in whole]
            return Parts(a.base, shared, (self.new(Select(condition, *zero)),))

    def _parts_of_hint(self, op: Hint, parts: Parts) -> Parts:
        """Move a hint of contiguity or constancy to the varying offset. Divisibility is a property
        of the whole address: neither the base nor an offset alone needs to have it."""
        if any(op.divisibility):
            parts = parts._replace(divisibility=op.divisibility)
        if not any(op.contiguity + op.constancy):
            return parts
        if isinstance(parts.base.type, Tile) or not parts.varying:
            return parts
        with self.build.before(op):
            varying = self.sum_varying(parts.varying)
            assert varying is not None
            unknown = (0,) * len(op.divisibility)
            hint = Hint(varying, unknown, op.contiguity, op.constancy)
            return parts._replace(varying=(self.new(hint),))

    def _split_offset(self, offset: Value, split: dict[Value, _Terms]) -> _Terms:
        """Uniform and varying terms whose sum, each extended to 64 bits, is the extended offset
        modulo 2^64.

        Args:
            split: the terms of parts of the same offset, computed before the same op.
        """
        result = split.get(offset)
        if result is None:
            result = split[offset] = self._find_terms(offset, split)
        return result

    def _find_terms(self, offset: Value, split: dict[Value, _Terms]) -> _Terms:
        if not isinstance(offset.type, Tile):
            return (() if known(offset) == 0 else self._scalars.of(offset)), ()
        op = offset.op
        match op:
            case Splat(src):
                return self._scalars.of(src), ()
            case Constant(value):
                uniform = Constant(value, element_of(offset.type))
                return ((self.new(uniform),) if value else ()), ()
            case Cast(src, to) if to.primitive_bitwidth == 64 and element_of(src.type).is_int():
                return (
                    self._split_offset(src, split)
                    if not element_of(src.type).is_bool()
                    else ((), (offset,))
                )
            case Add(a, b) if self._adds_exactly(offset, a, b):
                left, right = self._split_offset(a, split), self._split_offset(b, split)
                uniform, varying = left[0] + right[0], left[1] + right[1]
                if uniform and len(uniform) + len(varying) <= MOST_TERMS:
                    return uniform, varying
            case View(src) if op.moves_all and not op.elementwise:
                uniform, varying = self._split_offset(src, split)
                if uniform:
                    moved = [self.new(like(op, [term])) for term in varying]
                    return uniform, tuple(moved)
            case _:
                pass
        return (), (offset,)

    def _adds_exactly(self, total: Value, a: Value, b: Value) -> bool:
        """Whether the extended sum is the sum of the extended terms, modulo 2^64: whether the
        narrow sum does not wrap."""
        if element_of(total.type).primitive_bitwidth == 64:
            return True
        if not isinstance(a.op, _SPLITTABLE) and not isinstance(b.op, _SPLITTABLE):
            return False
        return sum_fits((a, b), *type_range(total))

    # -- sums -----------------------------------------------------------------------------------

    def number(self, value: int) -> Value:
        return self.new(Constant(value, I64))

    def wide(self, term: Value) -> Value:
        """The term extended to 64 bits."""
        if element_of(term.type) == I64:
            return term
        return self.new(Cast(term, I64, "rtne"))

    def sum_uniform(self, terms: Sequence[Value]) -> Value | None:
        """The sum of scalars in i64, with constants folded; None for 0."""
        total: Value | None = None
        constants = 0
        for term in terms:
            number = known(term)
            if number is not None:
                constants += int(number)
                continue
            wide = self.wide(term)
            total = wide if total is None else self.new(Add(total, wide))
        constants = (constants + 2**63) % 2**64 - 2**63
        if constants == 0:
            return total
        constant = self.number(constants)
        return constant if total is None else self.new(Add(total, constant))

    def sum_varying(self, terms: Sequence[Value], wide: bool = False) -> Value | None:
        """The sum of tiles: in i32 if it is known not to wrap, otherwise (or if `wide`) in i64;
        None for an empty sum."""
        if not terms:
            return None
        if len(terms) == 1 and not wide:
            return terms[0]
        narrow = not wide and sum_fits(terms, -(2**31), 2**31 - 1)
        element = I32 if narrow else I64
        total: Value | None = None
        for term in terms:
            cast = term
            if element_of(term.type) != element:
                cast = self.new(Cast(term, element, "rtne"))
            total = cast if total is None else self.new(Add(total, cast))
        return total

    def whole_offset(self, parts: Parts, type: Tile) -> Value | None:
        """The uniform and the varying offsets as one tile of i64; None for 0."""
        uniform = self.sum_uniform(parts.uniform)
        varying = self.sum_varying(parts.varying, wide=True)
        if uniform is None:
            return varying
        splat = self.new(Splat(uniform, type.shape))
        return splat if varying is None else self.new(Add(varying, splat))

    # -- construction ---------------------------------------------------------------------------

    def with_divisibility(self, pointer: Value, divisibility: tuple[int, ...]) -> Value:
        """The pointer with a hint of its divisibility, unless that is ()."""
        if not divisibility:
            return pointer
        unknown = (0,) * len(divisibility)
        return self.new(Hint(pointer, divisibility, unknown, unknown))

    def pointer(
        self, start: Value, uniform: Value | None, varying: Value | None, shape: tuple[int, ...]
    ) -> Value:
        """`start`, a scalar pointer or a tile of pointers, plus the offsets; a tile unless `shape`
        is ()."""
        is_tile = isinstance(start.type, Tile)
        if uniform is not None:
            offset = self.new(Splat(uniform, shape)) if is_tile else uniform
            start = self.new(AddPtr(start, offset))
        if shape and not is_tile:
            start = self.new(Splat(start, shape))
        return start if varying is None else self.new(AddPtr(start, varying))
