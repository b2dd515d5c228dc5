"""Pointers that grow by the same distance in each iteration of a loop are carried by it.

    for i in range(n):                     q = p
        x = load(p + i)             →      for i in range(n):
                                               x = load(q)
                                               q = q + 1

Which pointers:

- Those at an offset that the loop carries, `offset = offset + step`, with a step that it does not
  change: what source has as `p += step` is such an offset from the argument, in elements
  (`canonicalize_pointers`). The pointer takes the place of the offset, and the multiplication and
  the sums by which an address is made of it are not computed in each iteration. With a constant
  step, the addresses of unrolled iterations are one register at constant distances. Loops with
  operands in shared memory keep offsets: they wait for copies, and have other uses for registers.
- Those of scalars that a short loop loads, at its index. Assemblers unroll such loops, so that
  loads of several iterations are in flight. With a carried pointer, those of one array differ by a
  constant, and all start at once; an index of 32 bits may wrap, as far as an assembler knows, so
  that it extends and multiplies that of each iteration. Loops over the entries of a row of a sparse
  matrix are of this kind.

An offset that is carried has 64 bits; else it is the index, or its extension to 64 bits. The index
of an iteration is that of the preceding one plus the step, without wrapping, and pointers are added
modulo 2^64: the pointers are the same. What is carried out of the last iteration is not used.

Input: laid-out IR from which loop-invariant ops are hoisted, with pointers in canonical form.
Output: addresses of loops in the form above, which is not canonical: passes that decompose pointers
run before. Linear in the size of the function.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I64, Shared, dtype_of, shape_of
from tilewright.layout.linear import REGISTER
from tilewright.ops.arith import Add, Cast
from tilewright.ops.control import For
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.view import View
from tilewright.rewrites.control import carry_more
from tilewright.targets.gpu.sums import sum_of, terms_of

NAME = "carry_pointers"


class Growth(NamedTuple):
    """How a pointer of a loop grows: from `ptr` plus the sum of `starts`, by `step`."""

    op: AddPtr
    starts: tuple[Value, ...]
    step: Value


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
        short = _is_unrolled(loop, ctx)
        growths = [_growth(loop, op) or (_at_index(loop, op) if short else None) for op in pointers]
        found = [growth for growth in growths if growth is not None]
        if found:
            for growth in found:
                ctx.did(NAME, "the pointer is carried, and grows in each iteration", growth.op.loc)
            _carry(loop, found)
            ctx.count("carried", len(found))
            changed = True
    return changed


def _shares(loop: For) -> bool:
    """Whether a loop uses buffers in shared memory."""
    return any(
        isinstance(v.type, Shared) for op in loop.walk() for v in (*op.operands, *op.results)
    )


def _is_unrolled(loop: For, ctx: PassContext) -> bool:
    """Whether an assembler unrolls a loop, by the elements that a thread computes in an iteration.
    Loops with more than accesses and elementwise ops have other uses for registers."""
    work = 0
    for op in loop.body:
        if not (op.elementwise or op.terminator or isinstance(op, View | Load | Store)):
            return False
        tiles = [v.layout for v in op.results if v.layout is not None and op.elementwise]
        work += sum(layout.in_size(REGISTER) for layout in tiles)
    return work <= ctx.gpu.unrolled_work


def _is_fixed(loop: For, op: AddPtr) -> bool:
    """Whether it is one pointer, at a distance from one that the loop does not change."""
    return not shape_of(op.result.type) and not loop.contains(op.ptr)


def _growth(loop: For, op: AddPtr) -> Growth | None:
    """The growth of a pointer whose offset is one that the loop carries, plus invariant ones."""
    if dtype_of(op.offset.type) != I64:
        return None
    starts, step = list[Value](), None
    for term in terms_of(op.offset, lambda total: total.parent is loop.body):
        if not loop.contains(term):
            starts.append(term)
        elif step is None and (carried := _carried(loop, term)) is not None:
            init, step = carried
            starts.append(init)
        else:
            return None
    return None if step is None else Growth(op, tuple(starts), step)


def _carried(loop: For, value: Value) -> tuple[Value, Value] | None:
    """The first value and the step of one that the loop carries and adds an invariant step to."""
    carried = loop.body.args[1:]
    if value not in carried:
        return None
    place = carried.index(value)
    grown = loop.body.terminator.operands[place].op
    if not isinstance(grown, Add) or value not in grown.operands:
        return None
    step = next((other for other in grown.operands if other is not value), value)
    return None if loop.contains(step) else (loop.inits[place], step)


def _at_index(loop: For, op: AddPtr) -> Growth | None:
    """The growth of a pointer to loaded scalars at the distance of the loop's index."""
    index, offset = loop.body.args[0], op.offset
    if isinstance(offset.op, Cast) and dtype_of(offset.type) == I64:
        offset = offset.op.src
    if offset is not index or not dtype_of(index.type).is_int_signed():
        return None
    if not all(isinstance(user, Load) for user in op.result.users):
        return None
    return Growth(op, (loop.start,), loop.step)


def _carry(loop: For, growths: list[Growth]) -> None:
    b, inits, yields = Builder(), list[Value](), list[Value]()
    for op, starts, step in growths:
        pointer = loop.body.add_arg(op.result.type)
        with b.before(loop):
            inits.append(b.value(AddPtr(op.ptr, sum_of(b, starts))))
        with b.before(loop.body.terminator):
            yields.append(b.value(AddPtr(pointer, step)))
        op.result.replace_with(pointer)
        op.erase()
    carry_more(loop, inits, yields)
