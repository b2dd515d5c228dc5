"""Every pointer becomes a base and offsets.

The canonical form of the pointer of a load, a store or an atomic is

    addptr(splat(addptr(base, uniform)), varying)        of a tile
    addptr(base, uniform)                                of a scalar

where `base` is a scalar pointer that is no result of pointer arithmetic (a function's argument, as a
rule), `uniform` is a scalar i64, and `varying` a tile of integers of any width in the shape of the
pointer, which `addptr` extends to 64 bits by its sign. A part that is 0 is left out, and its op.
`ir/analysis/pointers.py: split_pointer` takes the form apart. A tile of pointers of which nothing
is known (loaded from memory, made from integers) is `addptr(tile, varying)`.

What is the same for all elements goes to `uniform`, where it is added once. Address arithmetic is
that of 64 bits, so sums of 64-bit offsets may be split and regrouped; sums of narrower ones only
where `ir/analysis/ranges.py` proves that they do not wrap. Two varying offsets are added in 32 bits
where that proof succeeds, in 64 otherwise.

A pointer that a `for` carries and moves is replaced by what it has moved by: in closed form,
iteration * step, where the step does not change in the loop and no one reads the last value, else
as carried i64 offsets. Pointers from the two branches of an `if` with the same base likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tilewright.ir.analysis.ranges import sum_fits, type_range
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import (
    I32,
    I64,
    Pointer,
    Tile,
    dtype_of,
    element_of,
    is_pointer,
    shape_of,
    with_element,
)
from tilewright.ops.arith import Add, Cast, Constant, Hint, IntDiv, Mul, Select, Sub
from tilewright.ops.control import For, If
from tilewright.ops.memory import AddPtr
from tilewright.ops.shape import Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.rewrites.control import remove_args, set_yields, take_region
from tilewright.rewrites.patterns import known, like

SHAPE_OPS = (ExpandDims, Broadcast, Reshape, Permute)


@compiler_pass("canonicalize_pointers")
def canonicalize_pointers(fn: Function, ctx: PassContext) -> bool:
    """Bring the pointer of every memory access into the form base + uniform + varying.

    Needs: verified SSA, calls inlined (a pointer that a call takes or gives is a base of its own).
    Leaves: the form above; sums and casts that canonicalize and cse make cheaper; no pointer
    arithmetic that nobody uses. Running it again changes nothing.
    """
    work = _Pointers(ctx)
    work.convert_regions(fn.body)
    if work.changed:
        work.forget()
    for op in list(fn.walk()):
        if not _is_pointer_arithmetic(op):
            work.canonicalize_operands(op)
    if work.changed:
        _erase_unused(fn)
    return work.changed


class Parts(NamedTuple):
    """A pointer as a base and offsets that are added to it, each extended to 64 bits.

    The base is a scalar pointer, or a tile of pointers of which nothing is known.
    """

    base: Value
    uniform: tuple[Value, ...] = ()
    varying: tuple[Value, ...] = ()


def _is_pointer_arithmetic(op: Op) -> bool:
    return isinstance(op, AddPtr | Splat | Select | Hint | SHAPE_OPS) and is_pointer(op.result.type)


def _erase_unused(fn: Function) -> None:
    for op in reversed(list(fn.walk())):
        dead = not (op.terminator or op.regions or any(r.users for r in op.results))
        if dead and op.pure:
            op.erase()


def _is_outside(value: Value, op: Op) -> bool:
    region = value.region
    return region is not None and not any(region.is_within(r) for r in op.regions)


class _Pointers:
    """The state of the pass: where it inserts, and what it knows of each pointer."""

    def __init__(self, ctx: PassContext) -> None:
        self.ctx = ctx
        self.changed = False
        self.build = Builder()
        self._parts: dict[Value, Parts] = {}
        self._canonical: dict[Value, Value] = {}

    def forget(self) -> None:
        self._parts.clear()

    # -- taking pointers apart ------------------------------------------------------------------

    def parts(self, pointer: Value) -> Parts:
        found = self._parts.get(pointer)
        if found is None:
            found = self._parts[pointer] = self._find_parts(pointer)
        return found

    def _find_parts(self, pointer: Value) -> Parts:
        op = pointer.op
        match op:
            case AddPtr(ptr, offset):
                base, uniform, varying = self.parts(ptr)
                with self.build.before(op):
                    more = self.split_offset(offset)
                return Parts(base, uniform + more[0], varying + more[1])
            case Splat(src):
                return self.parts(src)
            case ExpandDims(src) | Broadcast(src) | Reshape(src) | Permute(src):
                return self._parts_of_reshaped(op, self.parts(src))
            case Select(condition, on_true, on_false):
                return self._parts_of_select(op, condition, self.parts(on_true),
                                             self.parts(on_false))
            case Hint(src) if isinstance(pointer.type, Tile):
                return self._parts_of_hint(op, self.parts(src))
            case _:
                return Parts(pointer)

    def _parts_of_reshaped(self, op: Op, parts: Parts) -> Parts:
        """A change of shape acts on the varying offsets, or on the base if that is a tile."""
        base, uniform, varying = parts
        base_is_tile = isinstance(base.type, Tile)
        if base_is_tile and not uniform and not varying:
            return Parts(op.result)
        with self.build.before(op):
            if not shape_of(op.result.type) and varying:  # a reshape to a scalar
                scalars = [self.build.value(like(op, [term])) for term in varying]
                return Parts(base, (*uniform, *scalars))
            if base_is_tile:
                base = self.build.value(like(op, [base]))
            moved = [self.build.value(like(op, [term])) for term in varying]
        return Parts(base, uniform, tuple(moved))

    def _parts_of_select(self, op: Select, condition: Value, a: Parts, b: Parts) -> Parts:
        if a.base is not b.base:
            return Parts(op.result)
        type = with_element(op.result.type, I64)
        with self.build.before(op):
            if not isinstance(type, Tile):
                offsets = [self.sum_uniform(p.uniform) or self.number(0) for p in (a, b)]
                return Parts(a.base, (self.build.value(Select(condition, *offsets)),))
            if a.uniform == b.uniform:
                shared = a.uniform
                whole = [self.sum_varying(p.varying, type, wide=True) for p in (a, b)]
            else:
                shared = ()
                whole = [self.whole_offset(p, type) for p in (a, b)]
            zero = [w or self.build.value(Constant(0, type)) for w in whole]
            return Parts(a.base, shared, (self.build.value(Select(condition, *zero)),))

    def _parts_of_hint(self, op: Hint, parts: Parts) -> Parts:
        """Contiguity and constancy of pointers are those of their offsets."""
        if isinstance(parts.base.type, Tile) or not parts.varying:
            return parts
        with self.build.before(op):
            varying = self.sum_varying(parts.varying, with_element(op.result.type, I64))
            assert varying is not None
            nothing = (0,) * len(op.divisibility)
            hint = Hint(varying, nothing, op.contiguity, op.constancy)
            return Parts(parts.base, parts.uniform, (self.build.value(hint),))

    def split_offset(self, offset: Value) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """The offset as uniform terms and varying terms whose exact sum, mod 2^64, it is."""
        if not isinstance(offset.type, Tile):
            return (() if known(offset) == 0 else (offset,)), ()
        op = offset.op
        match op:
            case Splat(src):
                return (src,), ()
            case Constant(value):
                uniform = Constant(value, element_of(offset.type))
                return ((self.build.value(uniform),) if value else ()), ()
            case Cast(src, to) if to.primitive_bitwidth == 64 and element_of(src.type).is_int():
                return self.split_offset(src) if not element_of(src.type).is_bool() else (
                    (), (offset,))
            case Add(a, b) if self._adds_exactly(offset, a, b):
                left, right = self.split_offset(a), self.split_offset(b)
                if left[0] or right[0]:
                    return left[0] + right[0], left[1] + right[1]
            case ExpandDims(src) | Broadcast(src):
                uniform, varying = self.split_offset(src)
                if uniform:
                    moved = [self.build.value(like(op, [term])) for term in varying]
                    return uniform, tuple(moved)
            case _:
                pass
        return (), (offset,)

    def _adds_exactly(self, total: Value, a: Value, b: Value) -> bool:
        """Whether extending the sum to 64 bits is the sum of the extended terms, mod 2^64."""
        if element_of(total.type).primitive_bitwidth == 64:
            return True
        if not isinstance(a.op, _SPLITTABLE) and not isinstance(b.op, _SPLITTABLE):
            return False
        return sum_fits((a, b), *type_range(total))

    # -- sums -----------------------------------------------------------------------------------

    def number(self, value: int) -> Value:
        return self.build.value(Constant(value, I64))

    def wide(self, term: Value) -> Value:
        """The term in 64 bits."""
        if element_of(term.type) == I64:
            return term
        return self.build.value(Cast(term, I64))

    def sum_uniform(self, terms: Sequence[Value]) -> Value | None:
        """The sum of scalars in i64, the constants among them added here; None for 0."""
        total: Value | None = None
        constants = 0
        for term in terms:
            number = known(term)
            if number is not None:
                constants += int(number)
                continue
            wide = self.wide(term)
            total = wide if total is None else self.build.value(Add(total, wide))
        constants = (constants + 2**63) % 2**64 - 2**63
        if constants == 0:
            return total
        constant = self.number(constants)
        return constant if total is None else self.build.value(Add(total, constant))

    def sum_varying(
        self, terms: Sequence[Value], type: Tile | Value, wide: bool = False
    ) -> Value | None:
        """The sum of tiles: in i32 where it surely fits, else (or if `wide`) in i64."""
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
                cast = self.build.value(Cast(term, element))
            total = cast if total is None else self.build.value(Add(total, cast))
        return total

    def whole_offset(self, parts: Parts, type: Tile) -> Value | None:
        """The uniform and the varying offsets as one tile of i64; None for 0."""
        uniform = self.sum_uniform(parts.uniform)
        varying = self.sum_varying(parts.varying, type, wide=True)
        if uniform is None:
            return varying
        splat = self.build.value(Splat(uniform, type.shape))
        return splat if varying is None else self.build.value(Add(varying, splat))
