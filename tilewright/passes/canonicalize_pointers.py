"""Canonicalization of pointers to a base, a uniform and a varying offset.

The canonical form of the pointer of a load, a store or an atomic is

    addptr(splat(addptr(base, uniform)), varying)        for a tile of pointers
    addptr(base, uniform)                                for a scalar pointer

where `base` is a scalar pointer that is not a result of pointer arithmetic (usually an argument of
the function), `uniform` is a scalar i64, and `varying` is a tile of integers in the shape of the
pointer, of any width, which `addptr` sign-extends to 64 bits. Offsets that are 0 are omitted. If
the divisibility of the addresses of a tile is guaranteed, a `hint` wraps the whole form. A tile of
pointers of unknown origin (loaded from memory, cast from integers) has the form
`addptr(tile, varying)`. `analysis/pointers.py: split_pointer` decomposes the form.

Input: verified SSA with inlined calls (a pointer that a call takes or returns is a base). Output:
the form above at each access, without dead pointer arithmetic; new sums and casts are left to
canonicalize and cse. The pass is idempotent. It decomposes each pointer once, so that it is linear
in the number of pointer ops and of the terms of their offsets.

Terms that are equal for all elements go to `uniform`, where they are added once. Addresses are
computed modulo 2**64, so sums of 64-bit offsets may be reassociated; sums of narrower ones only
where `analysis/ranges.py` proves that they do not wrap, or where `scalar_terms.py` finds terms of
different loops with disjoint bits. Two varying offsets are added in 32 bits where the proof
succeeds, otherwise in 64.

A loop-carried pointer of a `for` is replaced by its offset: in closed form, iteration * step, if
the step is loop-invariant and the final value is unused; otherwise by loop-carried i64 offsets.
Pointers with the same base that the branches of an `if` yield are replaced in the same way.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I64, Tile, is_pointer, shape_of
from tilewright.ops.arith import Hint
from tilewright.ops.memory import AddPtr
from tilewright.ops.shape import Splat
from tilewright.passes.pointer_loops import convert_regions
from tilewright.passes.pointer_parts import Parts, PointerAlgebra, is_pointer_arithmetic


@compiler_pass("canonicalize_pointers", required=True)
def canonicalize_pointers(fn: Function, ctx: PassContext) -> bool:
    """Rewrite the pointer of every memory access as base + uniform + varying; see the module
    docstring."""
    algebra = PointerAlgebra(fn)
    changed = convert_regions(algebra, fn.body)
    canonical = _Canonical(algebra)
    for op in list(fn.walk()):
        if not is_pointer_arithmetic(op):
            changed |= canonical.operands_of(op)
    if algebra.inserted:
        _erase_unused(fn)
    return changed


def _erase_unused(fn: Function) -> None:
    for op in reversed(list(fn.walk())):
        used = op.terminator or op.regions or any(r.users for r in op.results)
        if not used and op.pure:
            op.erase()


class _Canonical:
    """Builds the canonical form of pointers, once for each."""

    def __init__(self, algebra: PointerAlgebra) -> None:
        self.algebra = algebra
        self._made: dict[Value, Value] = {}

    def operands_of(self, op: Op) -> bool:
        changed = False
        for i, operand in enumerate(op.operands):
            if is_pointer(operand.type):
                canonical = self.of(operand)
                if canonical is not operand:
                    op.set_operand(i, canonical)
                    changed = True
        return changed

    def of(self, pointer: Value) -> Value:
        """The pointer in canonical form."""
        result = self._made.get(pointer)
        if result is None:
            result = self._made[pointer] = self._make(pointer)
        return result

    def _make(self, pointer: Value) -> Value:
        algebra, op = self.algebra, pointer.op
        if op is None or not is_pointer_arithmetic(op):
            return pointer
        parts = algebra.parts(pointer)
        if parts.base is pointer or _is_canonical(pointer, parts):
            return pointer
        with algebra.build.before(op):
            if isinstance(parts.base.type, Tile):
                assert isinstance(pointer.type, Tile)
                offset = (
                    algebra.whole_offset(parts, pointer.type)
                    if parts.uniform
                    else algebra.sum_varying(parts.varying)
                )
                canonical = algebra.pointer(parts.base, None, offset, pointer.type.shape)
            else:
                uniform = algebra.sum_uniform(parts.uniform)
                varying = algebra.sum_varying(parts.varying)
                canonical = algebra.pointer(parts.base, uniform, varying, shape_of(pointer.type))
            return algebra.with_divisibility(canonical, parts.divisibility)


def _is_canonical(pointer: Value, parts: Parts) -> bool:
    op = pointer.op
    if parts.divisibility:
        if not isinstance(op, Hint) or op.divisibility != parts.divisibility:
            return False
        pointer, op = op.src, op.src.op
    if isinstance(op, Hint):
        return False
    if not isinstance(pointer.type, Tile):
        return _is_canonical_scalar(pointer, parts)
    if isinstance(parts.base.type, Tile):
        return isinstance(op, AddPtr) and op.ptr is parts.base
    varying: tuple[Value, ...] = ()
    if isinstance(op, AddPtr):
        varying = (op.offset,)
        pointer, op = op.ptr, op.ptr.op
    if parts.varying != varying:
        return False
    return isinstance(op, Splat) and _is_canonical_scalar(op.src, parts)


def _is_canonical_scalar(pointer: Value, parts: Parts) -> bool:
    op = pointer.op
    if not parts.uniform:
        return pointer is parts.base
    return (
        isinstance(op, AddPtr)
        and op.ptr is parts.base
        and parts.uniform == (op.offset,)
        and op.offset.type == I64
    )
