"""Strength reduction of pointers: those with a constant increment become loop-carried.

    for i in range(n):                     q = p
        x = load(p + i)             →      for i in range(n):
                                               x = load(q)
                                               q = q + 1

It applies to:

- Pointers at a loop-carried offset, `offset = offset + step`, with a loop-invariant step, such as
  `p += step` in the source, after `canonicalize_pointers`: an offset in elements. The pointer
  replaces the offset, so that the multiplication and the sums of the address are not computed in
  each iteration. With a constant step, the addresses of unrolled iterations are one register at
  constant distances. Loops with operands in shared memory keep offsets: they wait for copies, and
  use the registers otherwise.
- Pointers at a multiple of the loop's index, or of a 64-bit offset as above, with a loop-invariant
  factor that is known only at run time: `p += stride` with a stride that is an argument, after
  `canonicalize_pointers`. The product would be computed in each iteration, in 64 bits.
- Pointers of threads, ``splat(q) + y``, where each thread accesses adjacent elements at a
  loop-invariant distance from such a pointer, if assemblers unroll the loop. Otherwise each access
  adds the distance to the uniform pointer, in every unrolled iteration.
- Pointers of scalars that a short loop loads at its index, or at a 64-bit sum with it. Assemblers
  unroll such loops, so that loads of several iterations are in flight. With a carried pointer,
  loads of one array differ by a constant, and are all issued at once; an assembler must assume that
  a 32-bit index wraps, and extends and multiplies that of each iteration. Examples are loops over
  the entries of a row of a sparse matrix, or over the parts of a sum. If the trip count is known,
  LLVM may unroll the loop fully, with a constant index in each iteration; it does so less often if
  pointers are carried.

A carried offset and a sum have 64 bits; otherwise the offset is the index, or its extension. The
index of an iteration is that of the previous one plus the step, without wrapping, and pointers are
added modulo 2^64, so the pointers are equal. The value carried out of the last iteration is unused.

Input: laid-out IR from which loop-invariant ops are hoisted, with pointers in canonical form.
Output: addresses of loops in the form above, which is not canonical: passes that decompose pointers
run before. Linear in the size of the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I64, Shared, Type, dtype_of, shape_of
from tilewright.ops.arith import Add, Cast, Mul, constant_value
from tilewright.ops.control import For
from tilewright.ops.memory import AddPtr, Load
from tilewright.ops.shape import Splat
from tilewright.passes.software_pipelining import is_unrolled
from tilewright.rewrites.control import carry_more
from tilewright.rewrites.patterns import splat_like
from tilewright.targets.gpu.sums import sum_of, terms_of
from tilewright.targets.gpu.thread_pointers import is_one_access

NAME = "carry_pointers"


class Term(NamedTuple):
    """A value, or its product with a 64-bit factor, of a distance that a loop does not change."""

    value: Value
    factor: Value | None = None

    def product(self, b: Builder) -> Value:
        if self.factor is None:
            return self.value
        wide = (
            self.value
            if dtype_of(self.value.type) == I64
            else b.value(Cast(self.value, I64, "rtne"))
        )
        return b.value(Mul(wide, self.factor))


class Growth(NamedTuple):
    """How a pointer of a loop grows: from `ptr` plus the sum of `starts`, by `step`."""

    op: AddPtr
    starts: tuple[Term, ...]
    step: Term


@compiler_pass(NAME)
def carry_pointers(fn: Function, ctx: PassContext) -> bool:
    """Carry pointers that grow by the same distance in each iteration; see the module docstring."""
    changed = False
    if not ctx.gpu.unrolled_work:
        return False
    for loop in [op for op in fn.walk() if isinstance(op, For)]:
        pointers = [op for op in loop.body if isinstance(op, AddPtr) and _is_fixed(loop, op)]
        if not pointers or _shares(loop):
            continue
        short = is_unrolled(loop, ctx)
        indexed = short and not _is_counted(loop)
        growths = [_growth(loop, op, at_index=indexed and _loads(op)) for op in pointers]
        found = [growth for growth in growths if growth is not None]
        if found:
            for growth in found:
                ctx.did(
                    NAME,
                    "loop-carried, and advanced by its stride in each iteration",
                    growth.op.loc,
                )
            _carry(loop, found, tiles=short)
            ctx.count("carried", len(found))
            changed = True
    return changed


def _shares(loop: For) -> bool:
    """Whether a loop uses buffers in shared memory."""
    return any(
        isinstance(v.type, Shared) for op in loop.walk() for v in (*op.operands, *op.results)
    )


def _is_fixed(loop: For, op: AddPtr) -> bool:
    """Whether it is one pointer, at a distance from one that the loop does not change."""
    return not shape_of(op.result.type) and not loop.contains(op.ptr)


def _is_counted(loop: For) -> bool:
    """Whether the number of iterations is known, so that LLVM may unroll all of them."""
    return all(constant_value(bound) is not None for bound in (loop.start, loop.stop, loop.step))


def _loads(op: AddPtr) -> bool:
    """Whether only scalars are loaded from a pointer."""
    return all(isinstance(user, Load) for user in op.result.users)


def _growth(loop: For, op: AddPtr, *, at_index: bool) -> Growth | None:
    """The growth of a pointer whose offset is one that the loop carries, plus invariant ones.

    Args:
        at_index: whether the index of the loop counts as such an offset.
    """
    starts, step = list[Term](), None

    def is_split(total: Add) -> bool:
        return total.parent is loop.body and dtype_of(total.result.type) == I64

    for term in terms_of(op.offset, is_split):
        if not loop.contains(term):
            starts.append(Term(term))
            continue
        varying, factor = _factors(loop, term)
        at = at_index or factor is not None
        carried = _carried(loop, varying) or (_index(loop, varying) if at else None)
        if step is not None or carried is None:
            return None
        start, step = (Term(value, factor) for value in carried)
        if constant_value(start.value) != 0:
            starts.append(start)
    return None if step is None else Growth(op, tuple(starts), step)


def _factors(loop: For, term: Value) -> tuple[Value, Value | None]:
    """The factor of a 64-bit product that varies in a loop, and one that does not vary but is
    unknown; a value itself and None if it is no such product."""
    product = term.op
    if isinstance(product, Mul) and product.parent is loop.body and dtype_of(term.type) == I64:
        for varying, factor in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
            if not loop.contains(factor) and constant_value(factor) is None:
                return varying, factor
    return term, None


def _carried(loop: For, value: Value) -> tuple[Value, Value] | None:
    """The first value and the step of one of 64 bits that the loop carries and adds an invariant
    step to."""
    carried = loop.body.args[1:]
    if value not in carried or dtype_of(value.type) != I64:
        return None
    place = carried.index(value)
    grown = loop.body.terminator.operands[place].op
    if not isinstance(grown, Add) or value not in grown.operands:
        return None
    step = next((other for other in grown.operands if other is not value), value)
    return None if loop.contains(step) else (loop.inits[place], step)


def _index(loop: For, value: Value) -> tuple[Value, Value] | None:
    """The first value and the step of the loop's index, or of its extension to 64 bits."""
    index = loop.body.args[0]
    if isinstance(value.op, Cast) and dtype_of(value.type) == I64:
        value = value.op.src
    if value is not index or not dtype_of(index.type).is_int_signed():
        return None
    return loop.start, loop.step


def _carry(loop: For, growths: list[Growth], *, tiles: bool) -> None:
    """Carry pointers; those of tiles, too, or only those of all elements."""
    carried = _Carried(loop)
    for op, starts, step in growths:
        b = carried.b
        with b.before(loop):
            first = _moved(b, op.ptr, [start.product(b) for start in starts])
            grown = step.product(b)
        for tile in _tiles(loop, op) if tiles else ():
            carried.tile(tile, first, grown)
        if op.result.users:
            op.result.replace_with(carried.pointer(first, grown))
        op.erase()
    carry_more(loop, carried.inits, carried.yields)


def _tiles(loop: For, op: AddPtr) -> list[AddPtr]:
    """The pointers of one access of each thread at invariant distances from a pointer of a loop."""
    splats = [user for user in op.result.users if isinstance(user, Splat)]
    found = [user for splat in splats for user in splat.result.users if user.parent is loop.body]
    return [
        tile
        for tile in dict.fromkeys(found)
        if isinstance(tile, AddPtr)
        and not loop.contains(tile.offset)
        and is_one_access(tile.offset, tile)
    ]


class _Carried:
    """The additional carried values of a loop.

    Attributes:
        inits: the first values.
        yields: the next ones, which an iteration computes.
    """

    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.b = Builder()
        self.inits: list[Value] = []
        self.yields: list[Value] = []

    def pointer(self, first: Value, step: Value) -> Value:
        """A pointer that grows by `step`."""
        argument = self.loop.body.add_arg(first.type)
        argument.layout = first.layout
        with self.b.before(self.loop.body.terminator):
            grown = self.b.value(AddPtr(argument, splat_like(self.b, step, argument)))
        grown.layout = first.layout
        self.inits.append(first)
        self.yields.append(grown)
        return argument

    def tile(self, tile: AddPtr, first: Value, step: Value) -> None:
        """Carry the pointers of a tile at a distance from one that grows."""
        splat = tile.ptr.op
        with self.b.before(self.loop):
            start = self.b.value(AddPtr(splat_like(self.b, first, tile.result), tile.offset))
        start.layout = tile.result.layout
        tile.result.replace_with(self.pointer(start, step))
        tile.erase()
        if splat is not None and not splat.results[0].users:
            splat.erase()


def _moved(b: Builder, pointer: Value, offsets: Sequence[Value]) -> Value:
    """A pointer plus offsets, of which those of equal type are added first."""
    by_type: dict[Type, list[Value]] = {}
    for offset in offsets:
        by_type.setdefault(offset.type, []).append(offset)
    for terms in by_type.values():
        pointer = b.value(AddPtr(pointer, sum_of(b, terms)))
    return pointer
