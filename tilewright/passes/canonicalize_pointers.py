"""Every pointer becomes a base and offsets.

The canonical form of the pointer of a load, a store or an atomic is

    addptr(splat(addptr(base, uniform)), varying)        of a tile
    addptr(base, uniform)                                of a scalar

where `base` is a scalar pointer that is no result of pointer arithmetic (as a rule a function's
argument), `uniform` is a scalar i64, and `varying` a tile of integers of any width in the shape of
the pointer, which `addptr` extends to 64 bits by its sign. A part that is 0 is left out. A promise
that the addresses of a tile are multiples of some number is a `hint` around the whole form.
`analysis/pointers.py: split_pointer` takes the form apart. A tile of pointers of which nothing
is known (loaded from memory, made from integers) is `addptr(tile, varying)`.

What is the same for all elements goes to `uniform`, where it is added once. Address arithmetic is
that of 64 bits, so sums of 64-bit offsets may be split and regrouped; sums of narrower ones only
where `analysis/ranges.py` proves that they do not wrap. Two varying offsets are added in 32 bits
where that proof succeeds, in 64 otherwise.

A pointer that a `for` carries and moves is replaced by what it has moved by: in closed form,
iteration * step, where the step does not change in the loop and no one reads the last value, else
as carried i64 offsets. Pointers from the two branches of an `if` with the same base likewise.
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


@compiler_pass("canonicalize_pointers")
def canonicalize_pointers(fn: Function, ctx: PassContext) -> bool:
    """Bring the pointer of every memory access into the form base + uniform + varying.

    Needs: verified SSA, calls inlined (a pointer that a call takes or gives is a base of its own).
    Leaves: the form above; sums and casts that canonicalize and cse make cheaper; no pointer
    arithmetic that nobody uses. Running it again changes nothing.
    """
    algebra = PointerAlgebra()
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
    """Makes the canonical form of pointers, once of each."""

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
        """The pointer in the canonical form."""
        found = self._made.get(pointer)
        if found is None:
            found = self._made[pointer] = self._make(pointer)
        return found

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
                made = algebra.pointer(parts.base, None, offset, pointer.type.shape)
            else:
                uniform = algebra.sum_uniform(parts.uniform)
                varying = algebra.sum_varying(parts.varying)
                made = algebra.pointer(parts.base, uniform, varying, shape_of(pointer.type))
            return algebra.promised(made, parts.divisibility)


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
